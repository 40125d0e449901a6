case $PATH in "$dir/bin:"*) PATH=${PATH#"$dir/bin:"} ;; esac

# note NAME VALUE: notes a setting for the stack, and the kernel's present value.
note() {
  name=$(printf '%s' "$1" | tr -d ' ')
  case $name in
  /proc/sys/*) file=$name name=$(printf '%s' "${name#/proc/sys/}" | tr / .) ;;
  /sys/module/*/parameters/*) file=$name name=$(printf '%s' "${name#/sys/module/}" | sed 's|/parameters/|.|; s|^|module.|') ;;
  */*) name=$(printf '%s' "$name" | tr / .) file=/proc/sys/$1 ;;
  *) file=/proc/sys/$(printf '%s' "$name" | tr . /) ;;
  esac
  cat "$file" >"$dir/seen/$name" 2>/dev/null
  printf '%s\n' "$2" >"$dir/new" && mv "$dir/new" "$dir/settings/$name"
}
