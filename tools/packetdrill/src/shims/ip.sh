case " $* " in
*" link set "*" mtu "*)
  previous=
  for word; do
    [ "$previous" = mtu ] && printf '%s\n' "$word" >"$dir/mtu"
    previous=$word
  done
  ;;
esac

# metrics WORD..: notes the metrics of a route. They replace all earlier ones.
metrics() {
  rm -f "$dir"/settings/route.*
  previous=
  for word; do
    [ "$word" = lock ] && continue
    case $previous in
    initcwnd | rto_min | congctl | reordering | mtu) printf '%s\n' "$word" >"$dir/settings/route.$previous" ;;
    esac
    previous=$word
  done
}

# without PREFIX: prints the routes other than that of PREFIX.
without() {
  awk -v prefix="$1" '$1 != prefix' "$dir/routes" >"$dir/new"
}

# route VERB WORD..: changes the routes of tun0. The device does not exist, so they are lines of a
# file.
route() {
  verb=$1
  [ $# -gt 0 ] && shift
  case $verb in
  add | a | append | prepend | change | chg | replace)
    without "$1"
    printf '%s\n' "$*" >>"$dir/new"
    mv "$dir/new" "$dir/routes"
    metrics "$@"
    ;;
  del | delete | d)
    without "$1"
    mv "$dir/new" "$dir/routes"
    metrics
    ;;
  flush | f)
    : >"$dir/routes"
    metrics
    ;;
  get | g) awk -v address="$1" 'NR == 1 { $1 = address; print }' "$dir/routes" ;;
  *)
    case $1 in
    '' | dev) cat "$dir/routes" ;;
    *) awk -v prefix="$1" '$1 == prefix || index($1, prefix "/") == 1' "$dir/routes" ;;
    esac
    ;;
  esac
}

object=
for word; do
  case $word in
  -*) continue ;;
  esac
  object=$word
  break
done
case $object in
r | ro | rou | rout | route)
  case " $* " in
  *" tun0 "*) device=tun0 ;;
  *" dev "*) device=another ;;
  *) device=none ;;
  esac
  if [ $device != another ]; then
    [ $device = none ] && ip "$@" 2>/dev/null
    while [ "$1" != "$object" ]; do shift; done
    shift
    route "$@"
    exit 0
  fi
  ;;
tcp_metrics | tcpmetrics)
  # The stack forgets its peers when this file has grown.
  case " $* " in *" flush "* | *" f "* | *" delete "* | *" del "*) printf . >>"$dir/flushed" ;; esac
  ip "$@" 2>/dev/null
  exit 0
  ;;
esac
case " $* " in
*" tun0 "*)
  ip "$@" 2>/dev/null
  exit 0
  ;;
esac
exec ip "$@"
