case " $* " in
*" qdisc add "* | *" qdisc replace "* | *" qdisc change "*)
  case " $* " in
  *fifo\ limit\ 0\ *) : >"$dir/blackhole" ;;
  *) rm -f "$dir/blackhole" ;;
  esac
  ;;
*" qdisc del"*) rm -f "$dir/blackhole" ;;
esac
tc "$@" 2>/dev/null
exit 0
