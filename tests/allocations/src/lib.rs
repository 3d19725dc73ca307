//! What each thread of a test takes of the allocator.
//!
//! A test binary that links this crate has [`Counting`] as its allocator, so that other tests beside do not count.
//!
//! ```
//! let (bytes, most) = savanna_allocations::measured(|| vec![0_u8; 1 << 20].len());
//! assert!(bytes == 1 << 20 && most >= bytes);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has of the allocator, and the most that it had.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Does what is said, and tells the most that this thread took meanwhile beside what it had, in bytes.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let done = work();
    (done, (MOST.get() - before).cast_unsigned())
}

/// The system's allocator, which notes what each thread asks for.
#[derive(Debug)]
pub struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn note(bytes: isize) {
    // At the end of a thread nobody counts any more.
    _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: the system's allocator does what is asked for, and what is noted beside allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as the caller has it.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: as the caller has it.
        unsafe { System.realloc(place, layout, size) }
    }
}
