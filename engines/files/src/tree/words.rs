//! Names of users and groups, of which there are few: kept once each.

use std::collections::HashMap;
use std::sync::Arc;

/// A name that is kept.
pub(super) type Word = u32;

#[derive(Debug)]
pub(super) struct Words {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Word>,
}

impl Default for Words {
    /// The empty name is there from the beginning.
    fn default() -> Self {
        let mut words = Self { texts: Vec::new(), numbers: HashMap::new() };
        words.word(&Arc::from(""));
        words
    }
}

impl Words {
    /// The word of a text.
    pub(super) fn word(&mut self, text: &Arc<str>) -> Word {
        if let Some(word) = self.numbers.get(text) {
            return *word;
        }
        let word = Word::try_from(self.texts.len()).unwrap_or(Word::MAX);
        self.texts.push(Arc::clone(text));
        self.numbers.insert(Arc::clone(text), word);
        word
    }

    /// The text of a word.
    pub(super) fn text(&self, word: Word) -> &Arc<str> {
        self.texts.get(word as usize).unwrap_or(&self.texts[0])
    }
}
