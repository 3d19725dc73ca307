//! The texts of events. Nearly all of them are slices of buffers that are filled once: a column of text is then a column
//! of 16-byte views, and no byte of it is copied.
//!
//! ```text
//!   padding   128 KiB of letters                    extra
//!   words     32 KiB of letters and spaces          item names, descriptions, parts of e-mail addresses
//!   listed    names, cities, states, channels, each behind the other
//!   urls      one for each channel, 600 KiB
//! ```
//!
//! A batch that leaves the process should be compacted first (`StringViewArray::gc`): what encodes a column of views
//! sends the whole buffer along.

use arrow::array::builder::make_view;
use arrow::buffer::Buffer;

use crate::random::{Draws, below};

const FIRST_NAMES: [&str; 11] =
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];
const LAST_NAMES: [&str; 9] = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
const CITIES: [&str; 10] =
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"];
const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// How many channels there are beside the hot ones.
const CHANNELS: u32 = 10_000;
/// Random letters for padding. Twice the longest padding at least.
const PADDING: usize = 128 << 10;
/// Random letters and, one in thirteen, spaces.
const WORDS: usize = 32 << 10;
/// The shortest word.
const WORD_MIN: u32 = 3;

/// All texts that do not have to be put together per event.
#[derive(Debug)]
pub(crate) struct Texts {
    padding: Buffer,
    words: Buffer,
    listed: Buffer,
    urls_buffer: Buffer,
    names: Vec<u128>,
    cities: Vec<u128>,
    states: Vec<u128>,
    hot_channels: Vec<u128>,
    hot_urls: Vec<u128>,
    channels: Vec<u128>,
    urls: Vec<u128>,
}

/// The length of the text behind a view.
#[inline]
pub(crate) const fn view_len(view: u128) -> u32 {
    view as u32
}

/// The buffers that views point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Padding,
    Words,
    Listed,
    Urls,
}

/// Which list of texts an event picks from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Names,
    Cities,
    States,
}

impl Texts {
    /// The texts under a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let letters = Draws::new(seed, 1_001);
        let padding: Vec<u8> = (0..PADDING as u64).map(|n| letter(letters.pair(n).0)).collect();
        let (spaces, letters) = (Draws::new(seed, 1_002), Draws::new(seed, 1_003));
        let words: Vec<u8> = (0..WORDS as u64).map(|n| word_letter(spaces, letters, n, b' ')).collect();

        let mut listed = Vec::new();
        let names = FIRST_NAMES.iter().flat_map(|first| LAST_NAMES.map(|last| format!("{first} {last}")));
        let names = append(&mut listed, names);
        let cities = append(&mut listed, CITIES.iter().map(ToString::to_string));
        let states = append(&mut listed, STATES.iter().map(ToString::to_string));
        let hot_channels = append(&mut listed, HOT_CHANNELS.iter().map(ToString::to_string));
        let channels = append(&mut listed, (0..CHANNELS).map(|i| format!("channel-{i}")));

        let mut urls_buffer = Vec::new();
        let hot_urls = append(&mut urls_buffer, (0..HOT_CHANNELS.len() as u64).map(|i| base_url(seed, i)));
        let with_id = Draws::new(seed, 1_004);
        let url = |i: u32| {
            let url = base_url(seed, 4 + u64::from(i));
            match below(with_id.pair(u64::from(i)).0, 10) {
                0 => url,
                _ => format!("{url}&channel_id={}", (i.reverse_bits() as i32).unsigned_abs()),
            }
        };
        let urls = append(&mut urls_buffer, (0..CHANNELS).map(url));
        let [padding, words, listed, urls_buffer] = [padding, words, listed, urls_buffer].map(Buffer::from_vec);
        Self { padding, words, listed, urls_buffer, names, cities, states, hot_channels, hot_urls, channels, urls }
    }

    /// The buffer that views of this kind point into.
    pub(crate) fn buffer(&self, pool: Pool) -> &Buffer {
        match pool {
            Pool::Padding => &self.padding,
            Pool::Words => &self.words,
            Pool::Listed => &self.listed,
            Pool::Urls => &self.urls_buffer,
        }
    }

    /// One text of a list.
    #[inline]
    pub(crate) fn pick(&self, list: List, bits: u32) -> u128 {
        let list = match list {
            List::Names => &self.names,
            List::Cities => &self.cities,
            List::States => &self.states,
        };
        list[below(bits, list.len() as u32) as usize]
    }

    /// Half of the bids come through a hot channel; each channel has one URL, which lies at the same place.
    #[inline]
    fn channel_at(&self, (hot, which): (u32, u32)) -> (bool, usize) {
        if hot >> 31 == 1 { (true, below(which, 4) as usize) } else { (false, below(which, CHANNELS) as usize) }
    }

    /// The channel of a bid.
    #[inline]
    pub(crate) fn channel(&self, draw: (u32, u32)) -> u128 {
        let (hot, at) = self.channel_at(draw);
        if hot { self.hot_channels[at] } else { self.channels[at] }
    }

    /// The URL of a bid, by the same random numbers as its channel.
    #[inline]
    pub(crate) fn url(&self, draw: (u32, u32)) -> u128 {
        let (hot, at) = self.channel_at(draw);
        if hot { self.hot_urls[at] } else { self.urls[at] }
    }

    /// Padding that brings an event of `bytes` to `average` on average: a fifth more or less than what is missing.
    #[inline]
    pub(crate) fn padding(&self, bytes: u32, average: u32, (length, place): (u32, u32)) -> u128 {
        let Some(missing) = average.checked_sub(bytes) else { return 0 };
        let spread = (missing + 2) / 5;
        let length = missing - spread + below(length, 2 * spread);
        let at = below(place, PADDING as u32 - length) as usize;
        make_view(&self.padding.as_slice()[at..at + length as usize], 0, at as u32)
    }

    /// Words of at least three and less than `length_max` letters, less when there are spaces at the ends.
    #[inline]
    pub(crate) fn words(&self, length_max: u32, draw: (u32, u32)) -> u128 {
        let (at, text) = self.words_at(length_max, draw);
        make_view(text, 0, at as u32)
    }

    /// The same as bytes.
    #[inline]
    pub(crate) fn word_bytes(&self, length_max: u32, draw: (u32, u32)) -> &[u8] {
        self.words_at(length_max, draw).1
    }

    #[inline]
    fn words_at(&self, length_max: u32, (length, place): (u32, u32)) -> (usize, &[u8]) {
        let length = (WORD_MIN + below(length, length_max - WORD_MIN)) as usize;
        let at = below(place, (WORDS - length) as u32) as usize;
        let text = &self.words.as_slice()[at..at + length];
        let trimmed = text.trim_ascii_start();
        (at + length - trimmed.len(), trimmed.trim_ascii_end())
    }
}

/// Puts texts behind each other; returns their views.
fn append(bytes: &mut Vec<u8>, texts: impl Iterator<Item = String>) -> Vec<u128> {
    let view = |text: String| {
        let at = bytes.len();
        bytes.extend_from_slice(text.as_bytes());
        make_view(text.as_bytes(), 0, at as u32)
    };
    texts.map(view).collect()
}

fn letter(bits: u32) -> u8 {
    b'a' + below(bits, 26) as u8
}

fn word_letter(spaces: Draws, letters: Draws, n: u64, space: u8) -> u8 {
    if below(spaces.pair(n).0, 13) == 0 { space } else { letter(letters.pair(n).0) }
}

/// `https://www.nexmark.com/abc/de_/fgh/item.htm?query=1`
fn base_url(seed: u64, number: u64) -> String {
    let (lengths, spaces, letters) = (Draws::new(seed, 1_005), Draws::new(seed, 1_006), Draws::new(seed, 1_007));
    let mut url = String::from("https://www.nexmark.com/");
    for part in 0..3 {
        let n = number * 3 + part;
        let length = u64::from(WORD_MIN + below(lengths.pair(n).0, 5 - WORD_MIN));
        url.extend((0..length).map(|i| char::from(word_letter(spaces, letters, n * 8 + i, b'_'))));
        url.push('/');
    }
    url + "item.htm?query=1"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(texts: &Texts, pool: Pool, view: u128) -> String {
        let bytes = view.to_le_bytes();
        let length = view_len(view) as usize;
        let slice = if length <= 12 {
            bytes[4..4 + length].to_vec()
        } else {
            let at = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
            texts.buffer(pool).as_slice()[at..at + length].to_vec()
        };
        String::from_utf8(slice).unwrap()
    }

    #[test]
    fn a_channel_and_its_url_belong_together() {
        let texts = Texts::new(3);
        let draws = Draws::new(3, 5);
        let (mut hot, mut with_id) = (0, 0);
        for n in 0..1_000 {
            let channel = text(&texts, Pool::Listed, texts.channel(draws.pair(n)));
            let url = text(&texts, Pool::Urls, texts.url(draws.pair(n)));
            assert!(url.starts_with("https://www.nexmark.com/") && url.split('/').count() == 7, "{url}");
            match channel.strip_prefix("channel-") {
                Some(number) => {
                    let id = (number.parse::<u32>().unwrap().reverse_bits() as i32).unsigned_abs();
                    if let Some((_, given)) = url.split_once("&channel_id=") {
                        assert_eq!(given, id.to_string());
                        with_id += 1;
                    }
                }
                None => {
                    assert!(HOT_CHANNELS.contains(&channel.as_str()), "{channel}");
                    hot += 1;
                }
            }
        }
        assert!((450..550).contains(&hot), "{hot} bids through hot channels");
        assert!((400..500).contains(&with_id), "{with_id} URLs with a channel_id");
    }

    #[test]
    fn padding_makes_up_for_the_missing_bytes_on_average() {
        let texts = Texts::new(3);
        let draws = Draws::new(3, 6);
        let lengths: Vec<u32> = (0..2_000).map(|n| view_len(texts.padding(32, 100, draws.pair(n)))).collect();
        assert!(lengths.iter().all(|length| (54..82).contains(length)));
        let average = f64::from(lengths.iter().sum::<u32>()) / 2_000.0;
        assert!((66.5..69.0).contains(&average), "{average}");
        assert_eq!(texts.padding(101, 100, draws.pair(0)), 0);
    }

    #[test]
    fn words_are_trimmed() {
        let texts = Texts::new(3);
        let draws = Draws::new(3, 7);
        for n in 0..2_000 {
            let words = text(&texts, Pool::Words, texts.words(20, draws.pair(n)));
            assert_eq!(words, words.trim());
            assert!(words.len() < 20);
        }
    }
}
