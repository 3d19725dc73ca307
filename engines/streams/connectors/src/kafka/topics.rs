//! How many partitions topics have, remembered for a moment: a query asks several times while it starts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_streams_api::Result;

use super::client::{partitions, reader, reader_config};
use super::settings::Settings;

/// So long an answer is good.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Servers, user, topic.
type Name = (String, String, String);

/// The topics that were asked for.
#[derive(Debug, Default)]
pub(super) struct Topics(Mutex<BTreeMap<Name, (Instant, usize)>>);

impl Topics {
    /// How many partitions a table has.
    ///
    /// # Errors
    /// The brokers cannot be reached, or there is no such topic.
    pub(super) fn partitions(&self, settings: &Settings) -> Result<usize> {
        let name = (settings.servers.clone(), settings.user.clone(), settings.topic.clone());
        let known = self.0.lock().get(&name).filter(|(asked, _)| asked.elapsed() < REMEMBERED).copied();
        if let Some((_, count)) = known {
            return Ok(count);
        }
        let client = reader(settings, &reader_config(settings, &settings.group))?;
        let count = partitions(settings, &client)?;
        let mut all = self.0.lock();
        all.retain(|_, (asked, _)| asked.elapsed() < REMEMBERED);
        all.insert(name, (Instant::now(), count));
        Ok(count)
    }
}
