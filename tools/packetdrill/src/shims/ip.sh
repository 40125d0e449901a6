case " $* " in
*" link set "*" mtu "*)
  previous=
  for word; do
    [ "$previous" = mtu ] && printf '%s\n' "$word" >"$dir/mtu"
    previous=$word
  done
  ;;
esac
case " $* " in
*" tun0 "* | *" tcp_metrics "*)
  ip "$@" 2>/dev/null
  exit 0
  ;;
esac
exec ip "$@"
