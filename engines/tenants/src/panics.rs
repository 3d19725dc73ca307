//! Statements that panic because a test asked for it.

/// The text of a statement that panics.
static PANICS: parking_lot::Mutex<Option<String>> = parking_lot::Mutex::new(None);

/// Lets the next statement of this text panic.
pub fn panic_at(text: &str) {
    *PANICS.lock() = Some(text.to_owned());
}

/// Panics if somebody asked for it.
pub(crate) fn panic_if_asked(text: &str) {
    let asked = PANICS.lock().take_if(|asked| asked == text).is_some();
    assert!(!asked, "a test has asked for a panic");
}
