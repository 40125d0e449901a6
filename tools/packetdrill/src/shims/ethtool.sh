# What a device's offloads do to segments is not seen by a stack that has none: its segments are the wire's.
case " $* " in
*" tun0 "*)
  ethtool "$@" 2>/dev/null
  exit 0
  ;;
esac
exec ethtool "$@"
