//! `execl` and its relatives, whose arguments are the next program's.
//!
//! C passes the first arguments in registers and the others on the stack. Each function puts its
//! registers in front of those on the stack, which makes an array of strings, and calls a function
//! with the array. Nothing is copied or counted, so a child of `vfork` may call them.

use std::arch::naked_asm;

use libc::{c_char, c_int};

use crate::exec_unsafe::{execve, execvpe};
use crate::real_unsafe;

unsafe extern "C-unwind" fn execl_array(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise, and libc's own environment.
    unsafe { execve(path, argv, real_unsafe::environ()) }
}

unsafe extern "C-unwind" fn execlp_array(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise, and libc's own environment.
    unsafe { execvpe(file, argv, real_unsafe::environ()) }
}

/// The environment comes behind the null pointer that ends the arguments.
unsafe extern "C-unwind" fn execle_array(path: *const c_char, argv: *const *const c_char) -> c_int {
    let mut end = argv;
    // SAFETY: the caller's promise: a null pointer, and the environment behind it.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, argv, end.add(1).cast::<*const *const c_char>().read())
    }
}

/// Makes a function that calls `$array` with its arguments as an array.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident, $array:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's.
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            // Six words between the caller's stack and the call keep its alignment.
            naked_asm!(
                "pop r11",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push r11",
                "call {array}",
                "pop r11",
                "add rsp, 40",
                "push r11",
                "ret",
                array = sym $array,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's.
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            naked_asm!(
                "sub sp, sp, #64",
                "str x30, [sp]",
                "str x1, [sp, #8]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x6, x7, [sp, #48]",
                "add x1, sp, #8",
                "bl {array}",
                "ldr x30, [sp]",
                "add sp, sp, #64",
                "ret",
                array = sym $array,
            )
        }
    };
}

listed! {
    /// `execl`.
    execl, execl_array
}

listed! {
    /// `execlp`.
    execlp, execlp_array
}

listed! {
    /// `execle`.
    execle, execle_array
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C's `execl` takes any number of arguments.
    type Listed = unsafe extern "C" fn(*const c_char, *const c_char, ...) -> c_int;

    #[test]
    fn arguments_beyond_the_registers_come_to_the_function() {
        // SAFETY: C's type of the function.
        let execl = unsafe { std::mem::transmute::<*const (), Listed>(execl as *const ()) };
        let none = std::ptr::null::<c_char>();
        let words = [c"/nowhere", c"a", c"b", c"c", c"d", c"e", c"f", c"g"].map(|one| one.as_ptr());
        let [path, a, b, c, d, e, f, g] = words;
        // SAFETY: strings, and a null pointer at the end.
        let failed = unsafe { execl(path, a, b, c, d, e, f, g, none) };
        assert_eq!(failed, -1);
        assert_eq!(crate::errno_unsafe::errno_number(), libc::ENOENT);
    }
}
