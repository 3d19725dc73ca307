//! Who may begin a statement now: tokens of the tenants of one thread, a decision without clock or I/O.
//!
//! There are so many tokens of each kind a second. They go to the tenants that have spent some, by weight; what one cannot hold
//! goes to the others, unless the thread is *crowded*: if what is ready has to wait for it, everybody gets its own share only, so
//! that who wants little does not wait behind all that somebody else has begun. A tenth goes to nobody, so that the thread comes to
//! an end with what is ready. Who is alone needs no tokens. Who has none left waits before its next statement, and never inside
//! one: it may hold locks. A statement that costs more than there is leaves a debt.

use std::{collections::BTreeMap, ops::Index, time::Duration};

use savanna_tenants_segments::TenantId;

/// What a tenant holds at most: so much of the time's tokens.
const BURST: Duration = Duration::from_millis(20);
/// What a tenant owes at most. Only time of statements that run aside, on another thread, comes to more at once.
const DEBT_MAX: Duration = Duration::from_secs(1);
/// Who has spent something within this time counts as one who wants more.
const LATELY: Duration = Duration::from_millis(100);
/// A thread at which what is ready waits for longer is crowded.
const LAG_MAX: Duration = Duration::from_millis(1);
/// Of the tokens that the time brings, so many hundredths are given.
const GIVEN: u128 = 90;
/// Hundredths of a microsecond's part of a second's tokens in one token.
const WHOLE: u128 = 100_000_000;
/// Tokens are given at most this often.
const TICK: Duration = Duration::from_millis(1);

/// What is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Microseconds of the thread.
    Cpu,
    /// Bytes of the log.
    Log,
    /// Requests to the store.
    Store,
}

/// An amount of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([u64; 3]);

impl Amounts {
    /// Microseconds of the thread, bytes of the log, requests to the store.
    #[must_use]
    pub const fn new(cpu_micros: u64, log_bytes: u64, store_requests: u64) -> Self {
        Self([cpu_micros, log_bytes, store_requests])
    }
}

impl Index<Resource> for Amounts {
    type Output = u64;

    fn index(&self, resource: Resource) -> &u64 {
        &self.0[resource as usize]
    }
}

/// A tenant that has spent something lately.
#[derive(Clone, Copy, Debug)]
struct Account {
    tokens: [i64; 3],
    weight: u32,
    /// When it spent something last.
    spent: Duration,
}

/// The tokens of a thread's tenants.
#[derive(Debug)]
pub struct Budget {
    per_second: Amounts,
    holds: [i64; 3],
    debts_max: [i64; 3],
    /// Who is not here holds as much as it can, and has not wanted anything lately.
    accounts: BTreeMap<TenantId, Account>,
    given: Duration,
    /// What the time has brought and is no whole token yet, in hundred-millionths.
    rest: [u128; 3],
    crowded: bool,
}

impl Budget {
    /// So much of each resource a second.
    #[must_use]
    pub fn new(per_second: Amounts) -> Self {
        let within =
            |time: Duration| per_second.0.map(|rate| (u128::from(rate) * time.as_micros() / 1_000_000).max(1) as i64);
        let (holds, debts_max) = (within(BURST), within(DEBT_MAX));
        Self {
            per_second,
            holds,
            debts_max,
            accounts: BTreeMap::new(),
            given: Duration::ZERO,
            rest: [0; 3],
            crowded: false,
        }
    }

    /// Whether a tenant may begin a statement. `now` is the time since some beginning.
    pub fn admits(&mut self, tenant: TenantId, now: Duration) -> bool {
        self.give(now);
        let account = self.accounts.get(&tenant).filter(|_| self.accounts.len() > 1);
        account.is_none_or(|account| account.tokens.iter().all(|tokens| *tokens > 0))
    }

    /// Whether a tenant's query that runs elsewhere may have a page of rows. It leaves statements the half of what the tenant holds.
    pub fn admits_page(&mut self, tenant: TenantId, now: Duration) -> bool {
        self.give(now);
        let account = self.accounts.get(&tenant).filter(|_| self.accounts.len() > 1);
        account.is_none_or(|account| account.tokens.iter().zip(&self.holds).all(|(tokens, hold)| *tokens > hold / 2))
    }

    /// A tenant has spent something.
    pub fn charge(&mut self, tenant: TenantId, weight: u32, spent: Amounts, now: Duration) {
        self.give(now);
        let account = self.accounts.entry(tenant).or_insert(Account { tokens: self.holds, weight, spent: now });
        (account.weight, account.spent) = (weight.max(1), now);
        for (at, tokens) in account.tokens.iter_mut().enumerate() {
            *tokens = tokens.saturating_sub_unsigned(spent.0[at]).max(-self.debts_max[at]);
        }
        if let [account] = &mut self.accounts.values_mut().collect::<Vec<_>>()[..] {
            // Who is alone owes nobody anything.
            account.tokens = account.tokens.map(|tokens| tokens.max(0));
        }
    }

    /// What is ready waits for the thread for so long.
    pub fn note_lag(&mut self, lag: Duration) {
        self.crowded = lag > LAG_MAX;
    }

    /// When to ask again for a tenant that has to wait, at the earliest.
    #[must_use]
    pub fn ask_again(&self) -> Duration {
        self.given + TICK
    }

    /// Gives what the time has brought.
    fn give(&mut self, now: Duration) {
        let time = now.saturating_sub(self.given);
        if time < TICK {
            return;
        }
        self.given = now;
        for (at, hold) in self.holds.into_iter().enumerate() {
            self.rest[at] += u128::from(self.per_second.0[at]) * time.as_micros() * GIVEN;
            let mut left = i64::try_from(self.rest[at] / WHOLE).unwrap_or(i64::MAX);
            self.rest[at] %= WHOLE;
            // Each round fills somebody up or gives all there is.
            loop {
                let needs = |account: &&mut Account| account.tokens[at] < hold;
                let weights: i64 =
                    self.accounts.values_mut().filter(needs).map(|account| i64::from(account.weight)).sum();
                if left <= 0 || weights == 0 {
                    break;
                }
                let before = left;
                for account in self.accounts.values_mut().filter(needs) {
                    let share =
                        (i128::from(before) * i128::from(account.weight)).div_euclid(i128::from(weights)) as i64;
                    let given = share.max(1).min(hold - account.tokens[at]).min(left);
                    account.tokens[at] += given;
                    left -= given;
                }
                if self.crowded {
                    break;
                }
            }
        }
        let is_full = |account: &Account| account.tokens.iter().zip(&self.holds).all(|(tokens, hold)| tokens >= hold);
        self.accounts.retain(|_, account| !is_full(account) || now.saturating_sub(account.spent) < LATELY);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MILLISECOND: u64 = 1_000;

    fn budget() -> Budget {
        Budget::new(Amounts::new(1_000_000, 1 << 40, 1 << 40))
    }

    /// A thread that runs the statements that are admitted in the order in which they came, as a runtime does. Tenants send
    /// statements of 100 microseconds, so many each 10 ms. Returns how long those of each tenant took, on average, in
    /// microseconds.
    fn run(loads: &[u64], mut budget: Option<Budget>) -> Vec<u64> {
        let mut queues: Vec<VecDeque<u64>> = vec![VecDeque::new(); loads.len()];
        let mut took: Vec<(u64, u64)> = vec![(0, 0); loads.len()];
        let (mut now, mut arrived, mut probed) = (0, 0, 0);
        while now < 10_000 * MILLISECOND {
            while arrived <= now {
                for (queue, load) in queues.iter_mut().zip(loads) {
                    queue.extend((0..*load).map(|_| arrived));
                }
                arrived += 10 * MILLISECOND;
            }
            let time = Duration::from_micros(now);
            let mut admitted =
                |tenant: usize| budget.as_mut().is_none_or(|budget| budget.admits(tenant as TenantId, time));
            let next = (0..loads.len()).filter(|tenant| !queues[*tenant].is_empty() && admitted(*tenant));
            let next = next.min_by_key(|tenant| queues[*tenant][0]);
            // What became ready when the thread was asked last has its turn before what came later.
            if next.is_none_or(|next| queues[next][0] > probed) {
                if let Some(budget) = &mut budget {
                    budget.note_lag(Duration::from_micros(now - probed));
                }
                probed = now;
            }
            now += 100;
            let Some(tenant) = next else { continue };
            let since = queues[tenant].pop_front().expect("it is there");
            if let Some(budget) = &mut budget {
                budget.charge(tenant as TenantId, 1, Amounts::new(100, 10, 0), Duration::from_micros(now));
            }
            took[tenant].0 += now - since;
            took[tenant].1 += 1;
        }
        took.iter().map(|(sum, count)| sum / count.max(&1)).collect()
    }

    #[test]
    fn a_tenant_with_five_times_the_load_does_not_slow_others_down() {
        // Five tenants with a tenth of the thread each.
        let calm = run(&[10, 10, 10, 10, 10], Some(budget()));
        // One wants half of it five times over: more than there is.
        let crowded = run(&[10, 10, 10, 10, 100], Some(budget()));
        for tenant in 0..4 {
            assert!(crowded[tenant] <= calm[tenant] + 5 * MILLISECOND, "{calm:?} {crowded:?}");
        }
        let unfair = run(&[10, 10, 10, 10, 100], None);
        assert!(unfair[0] > 100 * crowded[0], "without a budget all wait for the one: {unfair:?} {crowded:?}");
    }

    /// Tenants that write to the log, or ask the store, which take `RATE` units a second in the order in which they come. Each tenant has one
    /// statement at a time, of so many units. Returns how many each finished in ten seconds, and how many milliseconds its last ones
    /// waited for what was in their way.
    fn occupy(resource: Resource, sizes: [u64; 2], mut budget: Option<Budget>) -> [(u64, u64); 2] {
        const CLIENTS: usize = 32;
        let mut spent = Amounts::default();
        let mut busy_until = 0;
        // When each client of each tenant has its answer; one of the first tenant's, many of the second's.
        let mut free_at = [vec![0; 1], vec![0; CLIENTS]];
        let mut finished = [(0, 0); 2];
        for now in 0..10_000 {
            for tenant in 0..2 {
                for client in 0..free_at[tenant].len() {
                    let time = Duration::from_millis(now);
                    let admitted = |budget: &mut Budget| budget.admits(tenant as TenantId, time);
                    if free_at[tenant][client] > now || !budget.as_mut().is_none_or(admitted) {
                        continue;
                    }
                    spent.0[resource as usize] = sizes[tenant];
                    if let Some(budget) = &mut budget {
                        budget.charge(tenant as TenantId, 1, spent, time);
                    }
                    busy_until = busy_until.max(now * RATE) + sizes[tenant] * 1_000;
                    free_at[tenant][client] = busy_until / RATE + 1;
                    finished[tenant] = (finished[tenant].0 + 1, free_at[tenant][client] - now);
                }
            }
        }
        finished
    }

    /// Units a second of the log or the store.
    const RATE: u64 = 100_000;

    #[test]
    fn a_tenant_that_fills_the_log_or_the_store_leaves_others_their_share() {
        for resource in [Resource::Log, Resource::Store] {
            let mut rates = Amounts::new(1_000_000, 1 << 40, 1 << 40);
            rates.0[resource as usize] = RATE;
            let [alone, _] = occupy(resource, [10, 0], Some(Budget::new(rates)));
            let [small, large] = occupy(resource, [10, 5_000], Some(Budget::new(rates)));
            assert!(small.0 > alone.0 / 8, "{resource:?}: {small:?} beside {large:?}, alone {alone:?}");
            assert!(large.0 * 5_000 > 5 * RATE, "{resource:?}: what is left goes to {large:?}");
            // With a budget that forgets this resource, the small one waits for all that the other has begun.
            let forgetful = Budget::new(Amounts::new(1_000_000, 1 << 40, 1 << 40));
            let [unfair, _] = occupy(resource, [10, 5_000], Some(forgetful));
            assert!(unfair.0 < alone.0 / 100 && unfair.0 < small.0 / 10, "{resource:?}: {unfair:?} {small:?}");
        }
    }

    #[test]
    fn who_is_alone_has_everything() {
        let alone = run(&[100], Some(budget()));
        let unlimited = run(&[100], None);
        assert!(alone[0] <= unlimited[0] + unlimited[0] / 10, "{alone:?} {unlimited:?}");
    }

    #[test]
    fn tokens_are_given_by_weight_and_what_one_cannot_hold_goes_to_others() {
        let mut budget = budget();
        // Each is owed by all three until the first has its fill.
        for (tenant, weight, spent) in [(3, 1, 1), (1, 1, 320), (2, 3, 320)] {
            budget.charge(tenant, weight, Amounts::new(spent * MILLISECOND, 0, 0), Duration::ZERO);
        }
        budget.give(Duration::from_millis(100));
        let tokens = |tenant| budget.accounts.get(&tenant).map(|account: &Account| account.tokens[0]);
        assert_eq!(tokens(3), None, "it has all that it can hold, and wants nothing");
        let (light, heavy) = (tokens(1).expect("in debt") + 300_000, tokens(2).expect("in debt") + 300_000);
        assert!((heavy - 3 * light).abs() < 10 && (heavy + light - 89_000).abs() < 10, "{light} {heavy}");
        budget.give(Duration::from_secs(10));
        assert!(budget.accounts.is_empty() && budget.admits(1, Duration::from_secs(10)));
    }

    #[test]
    fn of_few_tokens_a_second_none_is_lost() {
        let mut budget = Budget::new(Amounts::new(1_000_000, 1 << 40, 40));
        budget.charge(2, 1, Amounts::new(0, 0, 1), Duration::ZERO);
        budget.charge(1, 1, Amounts::new(0, 0, 30), Duration::ZERO);
        for millis in 1..=1_000 {
            budget.give(Duration::from_millis(millis));
        }
        assert!(budget.admits(1, Duration::from_secs(1)));
    }

    #[test]
    fn pages_wait_for_more_tokens_than_statements() {
        let mut budget = budget();
        budget.charge(1, 1, Amounts::new(12 * MILLISECOND, 0, 0), Duration::ZERO);
        assert!(budget.admits_page(1, Duration::ZERO), "who is alone needs none");
        budget.charge(2, 1, Amounts::new(MILLISECOND, 0, 0), Duration::ZERO);
        assert!(budget.admits(1, Duration::ZERO) && !budget.admits_page(1, Duration::ZERO));
        assert!(budget.admits_page(2, Duration::ZERO));
        assert!(budget.admits_page(1, Duration::from_millis(20)));
    }

    #[test]
    fn a_debt_is_paid_before_the_next_statement() {
        let mut budget = budget();
        budget.charge(2, 1, Amounts::new(10 * MILLISECOND, 0, 0), Duration::ZERO);
        budget.charge(1, 1, Amounts::new(10_000 * MILLISECOND, 0, 0), Duration::ZERO);
        let admitted = |millis: u64, budget: &mut Budget| {
            // The other one goes on.
            budget.charge(2, 1, Amounts::new(MILLISECOND, 0, 0), Duration::from_millis(millis));
            budget.admits(1, Duration::from_millis(millis))
        };
        assert!((10..1_100).step_by(10).all(|millis| !admitted(millis, &mut budget)), "a second is owed at most");
        assert!(admitted(1_300, &mut budget));
    }
}
