//! How many partitions topics have, remembered for a moment: a query asks several times while it starts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_streams_api::Result;

use super::client::{partitions, reader, reader_config};
use super::settings::{Properties, Settings};

/// So long an answer is good.
const REMEMBERED: Duration = Duration::from_secs(5);

/// A topic, and who asks for it where and how: another user may not see it.
type Name = (String, Properties);

fn name_of(settings: &Settings) -> Name {
    (settings.topic.clone(), settings.of_clients.clone())
}

/// The topics that were asked for.
#[derive(Debug, Default)]
pub(super) struct Topics(Mutex<BTreeMap<Name, (Instant, usize)>>);

impl Topics {
    /// How many partitions a table has.
    ///
    /// # Errors
    /// The brokers cannot be reached, or there is no such topic.
    pub(super) fn partitions(&self, settings: &Settings) -> Result<usize> {
        let known = self.0.lock().get(&name_of(settings)).filter(|(asked, _)| asked.elapsed() < REMEMBERED).copied();
        match known {
            Some((_, count)) => Ok(count),
            None => self.partitions_now(settings),
        }
    }

    /// The same, by what the brokers say now.
    ///
    /// # Errors
    /// As [`Self::partitions`].
    pub(super) fn partitions_now(&self, settings: &Settings) -> Result<usize> {
        let client = reader(settings, &reader_config(settings, &settings.group))?;
        let count = partitions(settings, &client)?;
        let mut all = self.0.lock();
        all.retain(|_, (asked, _)| asked.elapsed() < REMEMBERED);
        all.insert(name_of(settings), (Instant::now(), count));
        Ok(count)
    }
}
