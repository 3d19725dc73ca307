//! Window functions over rows that there is no memory for: they are sorted by what they are parted by, and then by the order of the window; so the
//! partitions come one behind the other.

use savanna_tenants_sql::{
    expression::rows::{compare, fingerprint},
    plan::{query::SortKey, window::WindowCall},
};
use savanna_tenants_values::{error::Result, memory::Memory, value::Value};

use super::{Partition, peers, valued};
use crate::{
    Run,
    explain::address,
    query::project,
    sorted::Sorted,
    spill::{Spool, Spooling},
};

/// Where the values stand that rows are sorted by, behind the columns of the rows. Behind them is the number that a row came with, by which those are
/// sorted that are equal otherwise: so it does not matter which other windows were computed before.
#[derive(Clone, Copy)]
struct Layout<'c> {
    call: &'c WindowCall,
    width: usize,
}

impl Layout<'_> {
    fn order(self) -> usize {
        self.width + self.call.partition.len()
    }

    fn number(self) -> usize {
        self.order() + self.call.order.len()
    }

    /// What a row is parted by, as bytes that are equal if it is.
    fn partition(self, row: &[Value]) -> Result<Vec<u8>> {
        fingerprint(&row[self.width..self.order()])
    }

    fn keys(self) -> Vec<SortKey> {
        let parts = (self.width..self.order()).map(|at| SortKey { at, descending: false, nulls_first: false });
        let order = (self.order()..).zip(&self.call.order);
        let order = order.map(|(at, by)| SortKey { at, descending: by.descending, nulls_first: by.nulls_first });
        let number = SortKey { at: self.number(), descending: false, nulls_first: false };
        parts.chain(order).chain([number]).collect()
    }

    /// What a row of a partition is sorted by.
    fn order_of(self, row: &[Value]) -> &[Value] {
        &row[self.order()..self.number()]
    }

    /// Whether two rows of a partition are equal by what they are sorted by.
    fn are_peers(self, a: &[Value], b: &[Value]) -> bool {
        let both = a.iter().zip(b).zip(&self.call.order);
        both.into_iter().all(|((a, b), by)| compare(a, b, by.descending, by.nulls_first).is_eq())
    }
}

impl Run<'_> {
    /// Appends the values of a window function to rows, and behind them the numbers that they came with, which they may have already.
    pub(super) fn window_in_file(
        &self,
        call: &WindowCall,
        rows: Spool,
        is_numbered: bool,
    ) -> Result<(Spool, Memory<'_>)> {
        let part = address(call);
        let layout = Layout { call, width: rows.with(0, <[Value]>::len)? - usize::from(is_numbered) };
        let keys = layout.keys();
        let mut sorted = Sorted::new(self, part, &keys, None);
        for (number, row) in (0..).zip(rows.into_rows()) {
            self.goes_on()?;
            let mut row = row?;
            let number = if is_numbered { row.pop() } else { None }.unwrap_or(Value::Int(number));
            let env = self.env().with_row(&row);
            let mut values = project(&call.partition, env)?;
            for by in &call.order {
                values.push(by.expr.owned(env)?);
            }
            row.append(&mut values);
            row.push(number);
            sorted.add(row)?;
        }
        let mut sorted = sorted.finish()?;
        let mut out = Spooling::new(self, part);
        let (mut partition, mut kind) = (Spooling::new(self, part), Vec::new());
        while let Some(row) = sorted.next()? {
            self.goes_on_after(0)?;
            let next = layout.partition(&row)?;
            if partition.len() > 0 && next != kind {
                self.finish_partition(layout, std::mem::replace(&mut partition, Spooling::new(self, part)), &mut out)?;
            }
            kind = next;
            partition.push(row)?;
        }
        if partition.len() > 0 {
            self.finish_partition(layout, partition, &mut out)?;
        }
        out.finish()
    }

    /// Appends the values to the rows of a partition.
    fn finish_partition(&self, layout: Layout<'_>, rows: Spooling<'_, '_>, out: &mut Spooling<'_, '_>) -> Result<()> {
        let (spool, mut memory) = rows.finish()?;
        // For each row its group, and perhaps that this begins there; and the rows that are read again and again.
        memory.take_bytes(3 * size_of::<usize>() * spool.len() + spool.near_bytes())?;
        let mut before = Vec::new();
        let is_peer = |at: usize| {
            self.goes_on_after(0)?;
            if at == 1 {
                before = spool.with(0, |row| layout.order_of(row).to_vec())?;
            }
            let here = spool.with(at, |row| layout.order_of(row).to_vec())?;
            let is_peer = layout.are_peers(&before, &here);
            before = here;
            Ok(is_peer)
        };
        let (groups, begins) = peers(spool.len(), is_peer)?;
        let mut keys = Vec::new();
        if layout.call.frame.is_distance() {
            for at in 0..spool.len() {
                self.goes_on_after(0)?;
                let key = spool.with(at, |row| layout.order_of(row).first().cloned())?.unwrap_or(Value::Null);
                memory.take_bytes(2 * size_of::<Value>() + key.bytes())?;
                keys.push(key);
            }
        }
        let valued = valued(&keys);
        let partition = Partition { spool: &spool, places: None, groups, begins, keys, valued };
        self.partition(layout.call, &partition, &mut |at, value| {
            let (mut row, number) =
                spool.with(at, |row| (row[..layout.width].to_vec(), row[layout.number()].clone()))?;
            row.extend([value, number]);
            out.push(row)
        })
    }
}
