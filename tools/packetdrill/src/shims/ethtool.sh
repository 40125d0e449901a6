# Offloads of a device do not concern the stack, which has none: its segments are those on the wire.
case " $* " in
*" tun0 "*)
  ethtool "$@" 2>/dev/null
  exit 0
  ;;
esac
exec ethtool "$@"
