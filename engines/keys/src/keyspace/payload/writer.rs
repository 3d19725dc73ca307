//! Writing what Redis reads, piece by piece.

/// Bytes that are being written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A number of things, or a number.
    pub(super) fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.byte(length as u8),
            0x40..0x4000 => self.bytes(&(length as u16 | 0x4000).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.byte(0x80);
                self.bytes(&(length as u32).to_be_bytes());
            }
            _ => {
                self.byte(0x81);
                self.bytes(&length.to_be_bytes());
            }
        }
    }

    pub(super) fn string(&mut self, bytes: &[u8]) {
        self.length(bytes.len() as u64);
        self.bytes(bytes);
    }
}
