//! A text cut into lines.

use savanna_tenants_host::{
    SqlError,
    error::{Result, state},
};

/// The lines of a text. All end like the first one: with a line feed, a carriage return, or both.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    end: Option<&'static [u8]>,
    /// How an end of a line is called that is not one.
    stray: &'static str,
}

impl<'a> Lines<'a> {
    /// Lines, of which earlier ones may have shown how they end.
    pub(super) const fn new(rest: &'a [u8], end: Option<&'static [u8]>, stray: &'static str) -> Self {
        Self { rest, end, stray }
    }

    /// How lines end, if there was one.
    pub(super) const fn end(&self) -> Option<&'static [u8]> {
        self.end
    }

    /// Bytes that are not read.
    pub(super) const fn rest(&self) -> usize {
        self.rest.len()
    }

    /// What follows is not read.
    pub(super) const fn end_here(&mut self) {
        self.rest = &[];
    }

    /// The next line, without its end; `step` says where the byte after the one at a place is that may end it.
    pub(super) fn next(&mut self, step: &mut dyn FnMut(&[u8], usize) -> usize) -> Result<Option<&'a [u8]>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut at = 0;
        while at < self.rest.len() {
            if !matches!(self.rest[at], b'\r' | b'\n') {
                at = step(self.rest, at);
                continue;
            }
            let here = &self.rest[at..];
            let found: &'static [u8] = match here {
                [b'\r', b'\n', ..] => b"\r\n",
                [b'\r', ..] => b"\r",
                _ => b"\n",
            };
            let end = *self.end.get_or_insert(found);
            if found != end {
                let what = if here[0] == b'\r' { "carriage return" } else { "newline" };
                let message = format!("{} {what} found in data", self.stray);
                return Err(SqlError::new(state::BAD_COPY_FILE_FORMAT, message));
            }
            let line = &self.rest[..at];
            self.rest = &here[end.len()..];
            return Ok(Some(line));
        }
        Ok(Some(std::mem::take(&mut self.rest)))
    }
}
