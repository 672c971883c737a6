//! The sync after each write of sled's log.
//!
//! On Linux, sled calls `sync_file_range` there and then takes the write for durable: it reuses the space of
//! earlier data and records the position in headers of segments. But `sync_file_range` neither flushes the
//! drive's cache nor writes the file's metadata, so a power loss could destroy data of earlier syncs. sled has
//! no setting for it. This module defines the function under the same name, and the linker takes this one.
#![expect(
    unsafe_code,
    reason = "a symbol of the C library can be replaced only by an exported function"
)]

use std::ffi::{c_int, c_uint};

unsafe extern "C" {
    /// Accepts any number, and fails for those that are not open files.
    safe fn fdatasync(file: c_int) -> c_int;
}

/// Syncs the whole file. sled reads the error from `errno`, which `fdatasync` sets.
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(file: c_int, _: i64, _: i64, _: c_uint) -> c_int {
    fdatasync(file)
}
