has_set=no quiet=no show=no
for word; do
  case $word in
  *=*) has_set=yes ;;
  -q* | --quiet) quiet=yes ;;
  -*) ;;
  *) show=$(printf '%s' "$word" | tr / .) ;;
  esac
done
if [ $has_set = no ]; then
  if [ -f "$dir/settings/$show" ]; then
    case " $* " in *" -n"* | *" --values"*) ;; *) printf '%s = ' "$show" ;; esac
    cat "$dir/settings/$show"
    exit 0
  fi
  exec sysctl "$@"
fi
output=$(sysctl "$@" 2>/dev/null)
[ $quiet = no ] && [ -n "$output" ] && printf '%s\n' "$output"
for word; do
  case $word in
  -*) ;;
  *=*) note "${word%%=*}" "${word#*=}" ;;
  esac
done
exit 0
