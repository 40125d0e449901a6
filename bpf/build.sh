#!/bin/sh
# Compiles bpf/*.c to the committed bpf/*.o, or proves that they agree.
#
#   bpf/build.sh            compile all into bpf/
#   bpf/build.sh --check    compile into a temporary directory and compare; exit 1 if an object differs
#
# The objects depend on the compiler alone: no system headers, no debug information, no identification of the compiler,
# no paths. `bpf/compiler` names the compiler that made the committed ones; another version may order instructions
# otherwise, and --check then says which one it wants. CLANG and LLVM_STRIP choose other tools.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
clang=${CLANG:-clang}
strip=${LLVM_STRIP:-llvm-strip}
version=$("$clang" --version | sed -n 's/.*clang version \([0-9]*\).*/clang \1/p' | head -n 1)

compile() { # source object
	(cd "$here" && "$clang" -O2 -target bpf -mcpu=v2 -std=gnu11 -Wall -Wextra -Werror -Wno-unused-variable \
		-fno-ident -fno-stack-protector -fno-asynchronous-unwind-tables -nostdinc \
		-c "$(basename "$1")" -o "$2")
	"$strip" --strip-debug --remove-section=.llvm_addrsig --remove-section=.BTF --remove-section=.BTF.ext "$2"
}

case "${1:-}" in
"")
	for source in "$here"/*.c; do
		compile "$source" "${source%.c}.o"
		echo "bpf: $(basename "${source%.c}.o")"
	done
	echo "$version" >"$here/compiler"
	;;
--check)
	temporary=$(mktemp -d)
	trap 'rm -rf "$temporary"' EXIT
	failed=0
	for source in "$here"/*.c; do
		name=$(basename "${source%.c}.o")
		compile "$source" "$temporary/$name"
		if ! cmp -s "$here/$name" "$temporary/$name"; then
			echo "bpf: $name is not what $version makes of its source (the committed one is of $(cat "$here/compiler"));" \
				"run bpf/build.sh" >&2
			failed=1
		fi
	done
	for object in "$here"/*.o; do
		if [ ! -e "${object%.o}.c" ]; then
			echo "bpf: $(basename "$object") has no source" >&2
			failed=1
		fi
	done
	exit $failed
	;;
*)
	echo "usage: bpf/build.sh [--check]" >&2
	exit 2
	;;
esac
