//! What is done to a stream, and its form in the log.

use super::StreamId;
use crate::delta::{Malformed, OpReader, OpWriter};

/// A change of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOperation<'a> {
    /// An entry is added.
    Add {
        /// Its number, higher than all before.
        id: StreamId,
        /// Its fields and values by turns.
        words: Vec<&'a [u8]>,
    },
    /// An entry is deleted.
    Delete(StreamId),
    /// So many entries at the beginning are removed.
    Trim(usize),
    /// What a stream knows of its past is this.
    SetId {
        /// The number of the last entry that was added.
        last: StreamId,
        /// How many were added.
        added: u64,
        /// The highest number of one that was deleted.
        max_deleted: StreamId,
    },
    /// A group comes to be.
    CreateGroup {
        /// Its name.
        name: &'a [u8],
        /// The last entry that it has.
        last: StreamId,
        /// How many entries it has read, if that is known.
        read: Option<u64>,
    },
    /// A group is removed.
    DestroyGroup(&'a [u8]),
    /// A group goes on elsewhere.
    MoveGroup {
        /// Its name.
        name: &'a [u8],
        /// The last entry that it has.
        last: StreamId,
        /// How many entries it has read, if that is known.
        read: Option<u64>,
    },
    /// A consumer asks for something; it may be new.
    SeeConsumer {
        /// The group.
        group: &'a [u8],
        /// Its name.
        name: &'a [u8],
        /// When, in milliseconds since 1970.
        at: u64,
    },
    /// A consumer is removed, and what is pending there.
    DeleteConsumer {
        /// The group.
        group: &'a [u8],
        /// Its name.
        name: &'a [u8],
    },
    /// Entries are delivered to a consumer: they are pending there from now on.
    Deliver {
        /// The group.
        group: &'a [u8],
        /// The consumer's name.
        consumer: &'a [u8],
        /// When, in milliseconds since 1970.
        at: u64,
        /// How often they were by now.
        count: u64,
        /// Their numbers.
        ids: Vec<StreamId>,
    },
    /// Entries are pending no longer.
    Settle {
        /// The group.
        group: &'a [u8],
        /// Their numbers.
        ids: Vec<StreamId>,
    },
}

const ADD: u8 = 1;
const DELETE: u8 = 2;
const TRIM: u8 = 3;
const SET_ID: u8 = 4;
const CREATE_GROUP: u8 = 5;
const DESTROY_GROUP: u8 = 6;
const MOVE_GROUP: u8 = 7;
const SEE_CONSUMER: u8 = 8;
const DELETE_CONSUMER: u8 = 9;
const DELIVER: u8 = 10;
const SETTLE: u8 = 11;

/// In the place of how many entries were read, if that is not known.
const UNKNOWN: u64 = u64::MAX;

fn write_id(to: &mut OpWriter<'_>, id: StreamId) {
    to.number(id.millis);
    to.number(id.count);
}

fn read_id(from: &mut OpReader<'_>) -> Result<StreamId, Malformed> {
    Ok(StreamId { millis: from.number()?, count: from.number()? })
}

fn write_ids(to: &mut OpWriter<'_>, ids: &[StreamId]) {
    to.number(ids.len() as u64);
    ids.iter().for_each(|id| write_id(to, *id));
}

/// One by one: a number of them that is wrong takes no memory.
fn read_all<T>(
    from: &mut OpReader<'_>,
    one: impl Fn(&mut OpReader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = from.number()?;
    (0..count).map(|_| one(from)).collect()
}

fn read_known(from: &mut OpReader<'_>) -> Result<Option<u64>, Malformed> {
    Ok(Some(from.number()?).filter(|number| *number != UNKNOWN))
}

impl<'a> StreamOperation<'a> {
    /// Writes it into a delta.
    pub(super) fn write(&self, to: &mut OpWriter<'_>) {
        match self {
            Self::Add { id, words } => {
                to.tag(ADD);
                write_id(to, *id);
                to.number(words.len() as u64);
                words.iter().for_each(|word| to.bytes(word));
            }
            Self::Delete(id) => {
                to.tag(DELETE);
                write_id(to, *id);
            }
            Self::Trim(count) => {
                to.tag(TRIM);
                to.number(*count as u64);
            }
            Self::SetId { last, added, max_deleted } => {
                to.tag(SET_ID);
                write_id(to, *last);
                to.number(*added);
                write_id(to, *max_deleted);
            }
            Self::CreateGroup { name, last, read } | Self::MoveGroup { name, last, read } => {
                to.tag(if matches!(self, Self::MoveGroup { .. }) { MOVE_GROUP } else { CREATE_GROUP });
                to.bytes(name);
                write_id(to, *last);
                to.number(read.unwrap_or(UNKNOWN));
            }
            Self::DestroyGroup(name) => {
                to.tag(DESTROY_GROUP);
                to.bytes(name);
            }
            Self::SeeConsumer { group, name, at } => {
                to.tag(SEE_CONSUMER);
                to.bytes(group);
                to.bytes(name);
                to.number(*at);
            }
            Self::DeleteConsumer { group, name } => {
                to.tag(DELETE_CONSUMER);
                to.bytes(group);
                to.bytes(name);
            }
            Self::Deliver { group, consumer, at, count, ids } => {
                to.tag(DELIVER);
                to.bytes(group);
                to.bytes(consumer);
                to.number(*at);
                to.number(*count);
                write_ids(to, ids);
            }
            Self::Settle { group, ids } => {
                to.tag(SETTLE);
                to.bytes(group);
                write_ids(to, ids);
            }
        }
    }

    /// The next operation of a delta.
    pub(super) fn read(from: &mut OpReader<'a>) -> Result<Option<Self>, Malformed> {
        let Some(tag) = from.tag() else { return Ok(None) };
        Ok(Some(match tag {
            ADD => {
                let id = read_id(from)?;
                let count = from.number()?;
                let words = (0..count).map(|_| from.bytes()).collect::<Result<Vec<_>, _>>()?;
                if words.is_empty() || !words.len().is_multiple_of(2) {
                    return Err(Malformed::new(format!("an entry of {} words", words.len())));
                }
                Self::Add { id, words }
            }
            DELETE => Self::Delete(read_id(from)?),
            TRIM => Self::Trim(from.number()? as usize),
            SET_ID => {
                let (last, added) = (read_id(from)?, from.number()?);
                Self::SetId { last, added, max_deleted: read_id(from)? }
            }
            CREATE_GROUP => Self::CreateGroup { name: from.bytes()?, last: read_id(from)?, read: read_known(from)? },
            DESTROY_GROUP => Self::DestroyGroup(from.bytes()?),
            MOVE_GROUP => Self::MoveGroup { name: from.bytes()?, last: read_id(from)?, read: read_known(from)? },
            SEE_CONSUMER => Self::SeeConsumer { group: from.bytes()?, name: from.bytes()?, at: from.number()? },
            DELETE_CONSUMER => Self::DeleteConsumer { group: from.bytes()?, name: from.bytes()? },
            DELIVER => Self::Deliver {
                group: from.bytes()?,
                consumer: from.bytes()?,
                at: from.number()?,
                count: from.number()?,
                ids: read_all(from, read_id)?,
            },
            SETTLE => Self::Settle { group: from.bytes()?, ids: read_all(from, read_id)? },
            other => return Err(Malformed::operation("stream", other)),
        }))
    }
}
