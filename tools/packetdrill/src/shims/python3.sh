case ${1##*/} in
set_sysctls.py) ;;
*) exec python3 "$@" ;;
esac
python3 "$@" 2>/dev/null
shift
for word; do note "${word%%=*}" "${word#*=}"; done
# It left a command that puts the settings back; where that is forbidden it was forbidden to change them.
restore=/tmp/sysctl_restore_$PACKETDRILL_PID.sh
[ -f "$restore" ] || printf '#!/bin/sh\n' >"$restore"
echo 'exit 0' >>"$restore"
chmod u+x "$restore"
exit 0
