//! The process's events: the library is loaded, the process forks, the process ends.

use std::path::PathBuf;

use libc::{c_int, c_void};

use crate::config::{Settings, VARIABLE};
use crate::{
    copies_unsafe, engine, exec_unsafe, kernel_listeners, listeners, log, own_process, real_unsafe,
    stderr_unsafe,
};

/// The loader calls the functions in this section before `main`.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[used]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    real_unsafe::resolve_all();
    let Some(text) = real_unsafe::environment(VARIABLE) else {
        return;
    };
    stderr_unsafe::keep();
    match Settings::parse(&text, &programs()) {
        Ok(settings) => {
            copies_unsafe::note_process();
            // SAFETY: functions of these types, which stay as long as the process.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
                libc::atexit(at_exit);
                // The first that is registered runs last, as above.
                __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut());
            }
            engine::turn_on(settings);
            exec_unsafe::begin();
        }
        Err(cause) => log::once(&format!("{cause}: the kernel has all sockets")),
    }
}

/// The names of the program without their directories: its file's, and that by which it was called.
fn programs() -> Vec<String> {
    let called = std::env::args_os().next().map(PathBuf::from);
    let paths = [std::env::current_exe().ok(), called];
    let name = |path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    paths.into_iter().flatten().filter_map(name).collect()
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
}

extern "C" fn at_quick_exit(_: *mut c_void) {
    engine::finish();
}

extern "C" fn before_fork() {
    engine::before_fork(|engine| {
        listeners::before_fork(engine);
        kernel_listeners::note(engine);
    });
}

extern "C" fn in_parent() {
    engine::after_fork_in_parent();
}

extern "C" fn in_child() {
    copies_unsafe::note_process();
    engine::after_fork_in_child(kernel_listeners::inherit);
}

extern "C" fn at_exit() {
    engine::finish();
}

/// `_exit`: lets connections close in order, as the kernel would.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _exit(status: c_int) -> ! {
    if engine::settings().is_some() && !own_process::is_vforked() {
        engine::finish();
    }
    real_unsafe::exit_now(status)
}

/// `_Exit`, like [`_exit`].
#[cfg_attr(not(test), unsafe(export_name = "_Exit"))]
pub extern "C" fn exit_at_once(status: c_int) -> ! {
    _exit(status)
}
