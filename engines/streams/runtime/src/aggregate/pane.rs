//! The merged rows of one pane.

use arrow::array::RecordBatch;
use savanna_streams_api::Result;
use savanna_streams_functions::without_shared_strings;

use super::spec::AggregateSpec;
use super::table::PaneTable;
use crate::snapshot::{Piece, PieceId};

/// The merged rows of a pane. Windows that overlap read a pane several times, and a table can be read only once: it is
/// frozen when the first of them closes. What comes first is kept as it is, since often nothing else comes: then no table is
/// needed.
///
/// ```text
///   frozen:   part  part  part  live            what a snapshot has is a part of its own
///             `--joined--'                      some rows at a time: until all are in, both are what is read
/// ```
#[derive(Default)]
pub(super) struct Pane {
    /// In the order of their numbers.
    pub(super) frozen: Vec<Piece>,
    pub(super) live: Option<PaneTable>,
    /// Whether a window has read it.
    pub(super) read: bool,
    /// Whether what is frozen stays as it is: a window may read it again, or a snapshot has it.
    pub(super) stays: bool,
    /// Parts that are being joined.
    pub(super) joining: Option<Joining>,
}

/// Two neighbouring parts, and so many of their rows, from the front, that are in a table.
pub(super) struct Joining {
    parts: [PieceId; 2],
    table: PaneTable,
    rows: usize,
}

impl Pane {
    /// Adds partial aggregates, one per key.
    pub(super) fn add(&mut self, spec: &AggregateSpec, rows: &RecordBatch, ids: &mut Vec<usize>) -> Result<()> {
        if self.frozen.is_empty() && self.live.is_none() {
            self.frozen.push(Piece::new(without_shared_strings(rows)?));
            return Ok(());
        }
        let table = match &mut self.live {
            Some(table) => table,
            live => live.insert(PaneTable::new(spec)?),
        };
        if !self.stays {
            for piece in self.frozen.drain(..) {
                table.merge(spec, piece.rows(), ids)?;
            }
        }
        table.merge(spec, rows, ids)
    }

    /// What a window reads.
    pub(super) fn freeze(&mut self, spec: &AggregateSpec) -> Result<()> {
        self.read = true;
        self.settle(spec)
    }

    /// What a snapshot reads: what came since the last one is apart.
    pub(super) fn settle(&mut self, spec: &AggregateSpec) -> Result<()> {
        self.stays = true;
        if let Some(table) = self.live.take() {
            self.frozen.push(Piece::new(table.into_state(spec)?));
        }
        Ok(())
    }

    /// Joins parts of which the later one is not less than half of the one before: so that together they are at most twice the first,
    /// however many snapshots there were. Takes at most so many rows in, and says so; tells whether there is nothing left to join.
    pub(super) fn join(&mut self, spec: &AggregateSpec, ids: &mut Vec<usize>, left: &mut usize) -> Result<bool> {
        while let Some(at) = self.pair() {
            let [first, second] = [at, at + 1].map(|at| self.frozen[at].rows().clone());
            let parts = [at, at + 1].map(|at| self.frozen[at].id());
            let mut joining = match self.joining.take().filter(|joining| joining.parts == parts) {
                Some(joining) => joining,
                None => Joining { parts, table: PaneTable::new(spec)?, rows: 0 },
            };
            let (of_first, all) = (first.num_rows(), first.num_rows() + second.num_rows());
            while joining.rows < all && *left > 0 {
                let (part, from) =
                    if joining.rows < of_first { (&first, joining.rows) } else { (&second, joining.rows - of_first) };
                let rows = (part.num_rows() - from).min(*left);
                joining.table.merge(spec, &part.slice(from, rows), ids)?;
                joining.rows += rows;
                *left -= rows;
            }
            if joining.rows < all {
                self.joining = Some(joining);
                return Ok(false);
            }
            let later = self.frozen.split_off(at + 2);
            self.frozen.truncate(at);
            self.frozen.push(Piece::new(joining.table.into_state(spec)?));
            // Those behind it have higher numbers.
            self.frozen.extend(later.into_iter().map(|piece| Piece::new(piece.rows().clone())));
        }
        self.joining = None;
        Ok(true)
    }

    /// Where the two parts are that are joined next: those that are being joined, or else the last ones for which it is time.
    fn pair(&self) -> Option<usize> {
        let mut pairs = self.frozen.windows(2);
        let of = |pair: &[Piece], parts: [PieceId; 2]| pair[0].id() == parts[0] && pair[1].id() == parts[1];
        let under_way = self.joining.as_ref().and_then(|joining| pairs.position(|pair| of(pair, joining.parts)));
        let is_due = |pair: &[Piece]| pair[1].rows().num_rows() >= pair[0].rows().num_rows() / 2;
        under_way.or_else(|| self.frozen.windows(2).rposition(is_due))
    }

    /// Whether there is something to join.
    pub(super) fn has_pair(&self) -> bool {
        self.pair().is_some()
    }

    pub(super) fn bytes(&self) -> usize {
        let frozen: usize = self.frozen.iter().map(|piece| piece.rows().get_array_memory_size()).sum();
        let joining = self.joining.as_ref().map_or(0, |joining| joining.table.bytes());
        frozen + joining + self.live.as_ref().map_or(0, PaneTable::bytes)
    }
}

/// The partial aggregates of some batches, a row for each key.
pub(super) fn merged<'r>(
    spec: &AggregateSpec,
    batches: impl Iterator<Item = &'r RecordBatch>,
    ids: &mut Vec<usize>,
) -> Result<RecordBatch> {
    let mut table = PaneTable::new(spec)?;
    for rows in batches {
        table.merge(spec, rows, ids)?;
    }
    table.into_state(spec)
}
