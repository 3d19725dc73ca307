//! The blocks of a file, in their order, without room for more: most files are never written again, and there are millions of them.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use crate::change::Block;

/// The blocks of a file, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlocksOfFile(Box<[Block]>);

impl BlocksOfFile {
    /// Adds one behind the last.
    pub fn push(&mut self, block: Block) {
        self.edit(|blocks| blocks.push(block));
    }

    /// Takes the last away.
    pub fn pop(&mut self) -> Option<Block> {
        self.edit(Vec::pop)
    }

    /// Keeps so many.
    pub fn truncate(&mut self, length: usize) {
        self.edit(|blocks| blocks.truncate(length));
    }

    /// Changes which there are.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Vec<Block>) -> T) -> T {
        let mut blocks = std::mem::take(&mut self.0).into_vec();
        let done = change(&mut blocks);
        self.0 = blocks.into_boxed_slice();
        done
    }
}

impl Deref for BlocksOfFile {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        &self.0
    }
}

impl DerefMut for BlocksOfFile {
    fn deref_mut(&mut self) -> &mut [Block] {
        &mut self.0
    }
}

impl From<Vec<Block>> for BlocksOfFile {
    fn from(blocks: Vec<Block>) -> Self {
        Self(blocks.into_boxed_slice())
    }
}

impl FromIterator<Block> for BlocksOfFile {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        Self(blocks.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a BlocksOfFile {
    type Item = &'a Block;
    type IntoIter = std::slice::Iter<'a, Block>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
