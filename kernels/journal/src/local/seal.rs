//! Ending a log in a directory, and reading one that has ended.
//!
//! Sealing is the first half of opening ([`Taken`]): the fence, reading, and a segment that says *older terms count up to
//! here*. That segment is written as a whole and says that there is no other after it. Whatever interrupts it, it is done again
//! from the beginning: until the segment has its name, the log is one that its next owner has fenced and not yet begun.
//!
//! Two may seal at once, while the owner's last batch is half written, and see different ends. So the one whose fence is the newest decides: a
//! log has ended when the newest segment says so *and no newer fence stands*. The other finds its own fence gone, and looks
//! again; if the newer one was abandoned, it ends the log again, behind the segment that ends it already, at the same place.

use std::{io, sync::Arc};

use savanna_epoch::NodeEpoch;

use super::{
    Disk, Taken, create_segment, fence,
    high_water::{self, Noted},
    parse_segment_name, recovery, remove, stage,
};
use crate::{
    error::JournalError,
    record::{self, Lsn, Record},
    segment::{Header, SEGMENT_HEADER, Term},
};

/// Others that may seal the log at the same time, before it is reported.
const ATTEMPTS: usize = 64;

/// Ends the log, if it has not ended. Returns its last record's LSN.
pub(crate) fn seal(disk: &Arc<dyn Disk>, notes: Option<&dyn Disk>, epoch: NodeEpoch) -> Result<Lsn, JournalError> {
    for _ in 0..ATTEMPTS {
        if let Some(last) = end_of(disk.as_ref())? {
            return Ok(last);
        }
        if fence::newest_of(&fence::list(disk.as_ref())?) == Term::default() {
            // Found out before anything is written: what sealing begins would be taken for the log by who does not know the notes.
            let noted = notes.map(high_water::read).transpose()?.flatten();
            return Err(no_log(disk.describe(""), noted));
        }
        match seal_once(disk, notes, epoch) {
            // Whoever else seals it under this epoch comes to the same end.
            Err(JournalError::Fenced { theirs, .. }) if theirs == epoch => {}
            result => return result,
        }
    }
    Err(JournalError::Stopped {
        reason: format!("{ATTEMPTS} others sealed the log at the same time and none ended it"),
    })
}

/// Nothing is there: nobody ever wrote there, or all of it is gone.
fn no_log(log: String, noted: Option<Noted>) -> JournalError {
    match noted {
        Some(Noted { durable, file }) if durable > Lsn::NONE => {
            JournalError::Lost { log, last: Lsn::NONE, durable, note: file }
        }
        _ => JournalError::NoLog { log },
    }
}

fn seal_once(disk: &Arc<dyn Disk>, notes: Option<&dyn Disk>, epoch: NodeEpoch) -> Result<Lsn, JournalError> {
    let taken = Taken::over(disk, notes, epoch, true, &mut |_| Ok(()))?;
    let bytes = taken.unsure.iter().map(|record| record::encoded_len(record.payload.len()) as u64).sum();
    let header = Header { body: Some(bytes), seals: true, ..taken.next_header() };
    let Taken { fence, recovered, last, unsure } = taken;
    let written = create_segment(disk.as_ref(), header, &unsure, 0, 0);
    written.map_err(|error| fence.explain(disk.as_ref(), error))?;
    fence.check(disk.as_ref())?;
    remove(disk.as_ref(), &recovered.needless);
    stage::remove_older(disk.as_ref())?;
    Ok(last)
}

/// The last record of a log that has ended; none if it has not, or somebody is about to end it again.
pub(crate) fn end_of(disk: &dyn Disk) -> Result<Option<Lsn>, JournalError> {
    let names = fence::list(disk)?;
    let newest = names.iter().filter_map(|name| Some((parse_segment_name(name)?, name))).max();
    let Some(((term, _), name)) = newest.filter(|((term, _), _)| *term == fence::newest_of(&names)) else {
        return Ok(None);
    };
    let path = disk.describe(name);
    let head = match disk.read(name, SEGMENT_HEADER as u64) {
        Ok(head) => head,
        // Its owner, who lives, has truncated the log since we looked.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(JournalError::io("read the header of", path)(error)),
    };
    let (header, _) = Header::decode(&head, &path)?;
    Ok((header.seals && header.term == term).then_some(header.base))
}

/// Hands over the records of a log that has ended at `last`, and changes nothing.
pub(crate) fn read_sealed(
    disk: &dyn Disk,
    last: Lsn,
    deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let found = recovery::find(disk, None)?;
    let end = found.last().filter(|newest| newest.header.seals).map(|newest| newest.header.base);
    if end != Some(last) {
        return Err(JournalError::replaced(disk.describe(""), last, end));
    }
    recovery::replay(disk, &found, deliver).map(drop)
}
