absolute=no silent=no keep=no zeros=no
for word; do
  case $word in
  --*) ;;
  -*)
    case $word in *a*) absolute=yes ;; esac
    case $word in *n*) silent=yes ;; esac
    case $word in *s*) keep=yes ;; esac
    case $word in *z*) zeros=yes ;; esac
    ;;
  esac
done
touch "$dir/counters" "$dir/history"
if [ $silent = no ]; then
  echo '#kernel'
  awk -v absolute=$absolute -v zeros=$zeros '
    FNR == NR && FILENAME ~ /history$/ { told[$1] = $2; next }
    { count = absolute == "yes" ? $2 : $2 - told[$1] }
    count != 0 || zeros == "yes" { printf "%-32s%-16d0.0\n", $1, count }
  ' "$dir/history" "$dir/counters"
fi
[ $keep = no ] && cp "$dir/counters" "$dir/history"
exit 0
