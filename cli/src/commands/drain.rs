//! `savanna drain`: a node gets nothing new, and its databases go to the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use savanna_http::types::{ClusterNode, ClusterShard, Move, MoveTechnique, Nodes, Settings, Shards};
use savanna_node::Config;
use serde_json::json;

use super::moves::{ask, ask_asleep, show};
use super::nodes::VIRTUAL_NODES;
use crate::args::{DrainArgs, Format};
use crate::client::{Client, path_part};
use crate::error::{CliError, Exit};
use crate::output;

/// What the names of the shards of databases begin with.
const DATABASES: &str = "tenants/";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// So many looks in a row that find nothing are the end: the first may be older than what others did before they heard of the drain.
const QUIET_LOOKS: usize = 2;
/// So many databases that sleep go at once.
const TOGETHER: usize = 63;
/// In so many looks some may stay: they are tried again.
const TRIES: usize = 6;
/// In so many looks some may be on their way. A move has ended by then, or its record was left behind.
const WAITS: usize = 180;
/// So many looks find as many virtual nodes of keys at the node as before until they are given up: they are moved by another node.
const KEYS_WAITS: usize = 20;
/// To so many nodes a database is moved in a look that stays all the same: each time it is served by nobody for a moment.
const STAYS_MAX: usize = 2;

/// What a look has found at a node, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    /// Databases that have left.
    gone: usize,
    /// Databases that were to leave and have stayed.
    stayed: usize,
    /// Databases that could not begin to leave.
    refused: usize,
    /// Databases that somebody else moves, to the node or away.
    on_their_way: usize,
}

/// What follows from a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Again,
    /// Nothing is there, and nothing comes.
    Empty,
    /// What is there stays, or what is on its way does not end.
    GiveUp,
}

/// The looks until now.
#[derive(Debug, Default)]
struct Looks {
    quiet: usize,
    with_some_that_stay: usize,
    with_some_on_their_way: usize,
}

impl Looks {
    fn after(&mut self, found: Found) -> Next {
        if found == Found::default() {
            self.quiet += 1;
            return if self.quiet >= QUIET_LOOKS { Next::Empty } else { Next::Again };
        }
        self.quiet = 0;
        let are_on_their_way = found.on_their_way > 0;
        // What is refused may only wait for those on their way: so many leave the node at once.
        let is_tried = found.stayed > 0 || (found.refused > 0 && !are_on_their_way);
        self.with_some_that_stay += usize::from(is_tried);
        self.with_some_on_their_way += usize::from(are_on_their_way);
        match self.with_some_that_stay >= TRIES || self.with_some_on_their_way >= WAITS {
            true => Next::GiveUp,
            false => Next::Again,
        }
    }
}

/// Which process of the node is drained, once that was seen: the next one is not.
#[derive(Debug, Default)]
struct Drained {
    epoch: Option<u64>,
}

impl Drained {
    /// Whether that process is there and is drained still, as the nodes are shown.
    fn is_so(&mut self, node: &str, nodes: &[ClusterNode]) -> bool {
        let drained = nodes.iter().find(|shown| shown.name == node && shown.is_drained);
        let seen = drained.map(|shown| shown.epoch);
        self.epoch = self.epoch.or(seen);
        seen.is_some() && seen == self.epoch
    }
}

/// Where databases can go.
#[derive(Debug, Default)]
struct Targets {
    /// How many databases each node has.
    counts: BTreeMap<String, usize>,
    /// How often each did not take one that another node took, since it took one itself.
    failures: BTreeMap<String, usize>,
}

impl Targets {
    /// These nodes from now on, with the databases that the records say they have.
    fn are(&mut self, others: &[&str], shards: &[ClusterShard]) {
        self.counts = others.iter().map(|node| ((*node).to_owned(), 0)).collect();
        for owner in databases(shards).filter_map(|shard| shard.owner.as_ref()) {
            self.counts.entry(owner.clone()).and_modify(|count| *count += 1);
        }
    }

    /// All nodes, the best first: who has failed least often, and has fewest.
    fn in_order(&self) -> Vec<String> {
        let failures = |node: &str| self.failures.get(node).copied().unwrap_or_default();
        let mut nodes: Vec<_> = self.counts.iter().collect();
        nodes.sort_by_key(|(node, count)| (failures(node), **count, *node));
        nodes.into_iter().map(|(node, _)| node.clone()).collect()
    }

    /// A node has taken a database, which these did not: they come after the others. What nobody takes is not the fault of any of them.
    fn took(&mut self, node: &str, not_taken_by: &[String]) {
        self.failures.remove(node);
        self.counts.entry(node.to_owned()).and_modify(|count| *count += 1);
        for other in not_taken_by {
            *self.failures.entry(other.clone()).or_default() += 1;
        }
    }
}

/// The node gets nothing new, and all its databases go, each to the node that has fewest by then.
pub(crate) async fn drain(config: &Config, format: Format, args: &DrainArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let nodes = nodes(&client).await?;
    if !nodes.iter().any(|node| node.name == args.node) {
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        return Err(CliError::Usage(format!("expected one of the nodes {}, came {}", names.join(", "), args.node)));
    }
    let path = format!("nodes/{}/drain", path_part(&args.node));
    if args.undo {
        client.delete(&path).await.map_err(|error| client.explain(error))?;
        report(format, args, (false, "the node gets databases again"), (0, 0))?;
        return Ok(Exit::Done);
    }
    let takes_some = nodes.iter().any(|node| node.name == args.node && takes_databases(node));
    if takes_some && others(&nodes, &args.node).is_empty() {
        let node = &args.node;
        return Err(CliError::Usage(format!(
            "no other node than {node} takes databases: start one, or undo the drain of another"
        )));
    }
    client.put(&path).await.map_err(|error| client.explain(error))?;
    let (mut looks, mut moved) = (Looks::default(), 0);
    let (mut drained, mut targets) = (Drained::default(), Targets::default());
    let left = loop {
        let Some(found) = look(&client, format, &args.node, (&mut drained, &mut targets)).await? else {
            report(format, args, (false, &not_any_more(&args.node)), (moved, 0))?;
            return Ok(Exit::Failed);
        };
        moved += found.gone;
        if found.on_their_way > 0 && looks.with_some_on_their_way == 0 {
            eprintln!(
                "{} databases are on their way to the node or away from it: they are waited for",
                found.on_their_way
            );
        }
        match looks.after(found) {
            Next::Again => tokio::time::sleep(PAUSE).await,
            Next::Empty => break 0,
            Next::GiveUp => break found.stayed + found.refused + found.on_their_way,
        }
    };
    if left > 0 {
        eprintln!(
            "{left} databases stay at the node, or are still on their way: `savanna shards` and `savanna moves` say which and why; try again"
        );
    }
    let mut all = shards(&client).await?;
    let mut keys_left = 0;
    if all.iter().any(|shard| is_virtual_node_of(shard, &args.node)) {
        keys_left = wait_for_keys(&client, &args.node).await?;
        all = shards(&client).await?;
    }
    if keys_left > 0 {
        eprintln!(
            "{keys_left} virtual nodes of keys stay at the node for now: the log of the node that has shard `keys` says why"
        );
    }
    let kept = all
        .iter()
        .filter(|shard| shard.owner.as_ref() == Some(&args.node) && !shard.shard.starts_with(DATABASES))
        .map(|shard| shard.shard.as_str());
    let (virtual_nodes, kept): (Vec<&str>, Vec<&str>) = kept.partition(|shard| shard.starts_with(VIRTUAL_NODES));
    let virtual_nodes = (!virtual_nodes.is_empty()).then(|| format!("{} virtual nodes of keys", virtual_nodes.len()));
    let kept: Vec<String> = kept.into_iter().map(str::to_owned).chain(virtual_nodes).collect();
    if !kept.is_empty() {
        eprintln!("the shards {} stay there until the node ends; another one takes them over then", kept.join(", "));
    }
    let notice = format!("the node gets nothing new until it starts again, or `savanna drain {} --undo`", args.node);
    report(format, args, (true, &notice), (moved, left))?;
    Ok(if left + keys_left == 0 { Exit::Done } else { Exit::Failed })
}

/// Waits until other nodes have the virtual nodes of keys that a drained node has: the node that shares them out moves them. Gives how many do not
/// go, though keys move in this cluster; where they do not, none is to.
async fn wait_for_keys(client: &Client, node: &str) -> Result<usize, CliError> {
    let takes_keys = |other: &ClusterNode| {
        other.name != node && !other.is_drained && other.services.iter().any(|service| service == "keys")
    };
    if !may_keys_move(client).await || !nodes(client).await?.iter().any(takes_keys) {
        return Ok(0);
    }
    let (mut fewest, mut idle) = (usize::MAX, 0);
    while idle < KEYS_WAITS {
        let shards = shards(client).await?;
        let left = shards.iter().filter(|shard| is_virtual_node_of(shard, node)).count();
        if left == 0 {
            return Ok(0);
        }
        if fewest == usize::MAX {
            eprintln!("{left} virtual nodes of keys go to other nodes: they are waited for");
        }
        idle = if left < fewest { 0 } else { idle + 1 };
        fewest = fewest.min(left);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(fewest)
}

/// Whether a shard is a virtual node of keys that a node has.
fn is_virtual_node_of(shard: &ClusterShard, node: &str) -> bool {
    shard.shard.starts_with(VIRTUAL_NODES) && shard.owner.as_deref() == Some(node)
}

/// Whether keys move between nodes, as the node that is asked was told. If it does not say so, they do not: databases have gone all the same.
async fn may_keys_move(client: &Client) -> bool {
    let told: Result<Settings, _> = client.get("config").await;
    match told {
        Ok(told) => told.settings.iter().any(|setting| setting.key == "keys.moves" && setting.value == "true"),
        Err(error) => {
            let why = client.explain(error);
            eprintln!("keys are not waited for, as the node does not say whether they move (`keys.moves`): {why}");
            false
        }
    }
}

/// What is told of a node that was drained a moment ago.
fn not_any_more(node: &str) -> String {
    format!(
        "node {node} is not drained any more: it has ended or has started again, or somebody has undone it; look at `savanna nodes`, and drain it again if it is to be stopped"
    )
}

async fn nodes(client: &Client) -> Result<Vec<ClusterNode>, CliError> {
    let Nodes { nodes } = client.get("nodes").await.map_err(|error| client.explain(error))?;
    Ok(nodes)
}

async fn shards(client: &Client) -> Result<Vec<ClusterShard>, CliError> {
    let Shards { shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
    Ok(shards)
}

/// Whether databases can go to a node, but for its drain. A node of an earlier release does not say who serves any, only who is to.
fn takes_databases(node: &ClusterNode) -> bool {
    node.serves_databases.unwrap_or_else(|| node.services.iter().any(|name| name == "tenants"))
}

/// The nodes beside one to which databases can go.
fn others<'n>(nodes: &'n [ClusterNode], node: &str) -> Vec<&'n str> {
    let others = nodes.iter().filter(|other| other.name != node && !other.is_drained && takes_databases(other));
    others.map(|other| other.name.as_str()).collect()
}

fn databases(shards: &[ClusterShard]) -> impl Iterator<Item = &ClusterShard> {
    shards.iter().filter(|shard| shard.shard.starts_with(DATABASES))
}

/// Looks for databases that are at a node, or on their way to it, and moves the first away; none if the node is not drained any more.
async fn look(
    client: &Client,
    format: Format,
    node: &str,
    (drained, targets): (&mut Drained, &mut Targets),
) -> Result<Option<Found>, CliError> {
    let (nodes, shards) = (nodes(client).await?, shards(client).await?);
    if !drained.is_so(node, &nodes) {
        return Ok(None);
    }
    targets.are(&others(&nodes, node), &shards);
    let found = move_away(client, format, (node, &shards), targets).await?;
    Ok(Some(Found { on_their_way: found.on_their_way + coming(&shards, node), ..found }))
}

/// The databases on their way to a node that does not have them yet.
fn coming(shards: &[ClusterShard], node: &str) -> usize {
    let is_coming =
        |shard: &&ClusterShard| shard.moving_to.as_deref() == Some(node) && shard.owner.as_deref() != Some(node);
    shards.iter().filter(is_coming).count()
}

/// Moves the databases of a node to others.
async fn move_away(
    client: &Client,
    format: Format,
    (node, shards): (&str, &[ClusterShard]),
    targets: &mut Targets,
) -> Result<Found, CliError> {
    let mut leaving: Vec<_> = databases(shards).filter(|shard| shard.owner.as_deref() == Some(node)).collect();
    let mut found = Found::default();
    let gone = move_asleep(client, format, &leaving, targets).await?;
    found.gone += gone.len();
    leaving.retain(|shard| !gone.contains(&shard.shard));
    for (number, shard) in leaving.iter().enumerate() {
        let place = format!("{} of {}", number + 1, leaving.len());
        match carry(client, (&place, shard), targets).await {
            Ok(moved) => {
                let count = if moved.stayed.is_some() { &mut found.stayed } else { &mut found.gone };
                *count += 1;
                show(format, &[moved])?;
            }
            // It moves already, was dropped, or cannot go anywhere now: the others go, and the next look tries it again.
            Err(CliError::Refused(reason)) => {
                let count = if shard.moving_to.is_some() { &mut found.on_their_way } else { &mut found.refused };
                *count += 1;
                eprintln!("{} stays for now: {reason}", shard.shard);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Moves the databases that sleep, many at a time. Those that have gone; whatever keeps others, they are moved one by one.
async fn move_asleep(
    client: &Client,
    format: Format,
    leaving: &[&ClusterShard],
    targets: &mut Targets,
) -> Result<BTreeSet<String>, CliError> {
    let served: Vec<_> =
        leaving.iter().filter(|shard| shard.moving_to.is_none()).map(|shard| shard.shard.clone()).collect();
    let mut gone = BTreeSet::new();
    // Where a few are to go, one by one is as good, and who is asked may be of an earlier release.
    for some in served.chunks(share(served.len(), targets.counts.len())).filter(|_| served.len() > 1) {
        match carry_asleep(client, some, targets).await? {
            Together::Went(moved) => {
                show(format, &moved)?;
                gone.extend(moved.into_iter().map(|moved| moved.shard));
            }
            Together::NoneSlept => {}
            Together::NotTaken => break,
        }
    }
    Ok(gone)
}

/// What came of databases that were to go together.
enum Together {
    /// These went.
    Went(Vec<Move>),
    NoneSlept,
    /// No node takes them in this way.
    NotTaken,
}

/// Moves those of some databases that sleep to the first node that takes them.
async fn carry_asleep(client: &Client, some: &[String], targets: &mut Targets) -> Result<Together, CliError> {
    let mut not_taken_by = Vec::new();
    for to in targets.in_order() {
        let reason = match ask_asleep(client, some.to_vec(), &to).await {
            Ok(moved) if moved.is_empty() => return Ok(Together::NoneSlept),
            Ok(moved) => {
                let (went, stayed): (Vec<_>, Vec<_>) = moved.into_iter().partition(|moved| moved.stayed.is_none());
                if !went.is_empty() {
                    eprintln!("{} that sleep have gone to {to}", went.len());
                    targets.took(&to, &not_taken_by);
                    went.iter().skip(1).for_each(|_| targets.took(&to, &[]));
                    return Ok(Together::Went(went));
                }
                stayed.into_iter().find_map(|moved| moved.stayed).unwrap_or_default()
            }
            Err(CliError::Refused(reason)) => reason,
            Err(error) => return Err(error),
        };
        eprintln!("databases that sleep do not go to {to} together: {reason}");
        not_taken_by.push(to);
    }
    Ok(Together::NotTaken)
}

/// How many databases go to one node at once, of so many that go to so many nodes: each is to get as many as the others.
fn share(databases: usize, nodes: usize) -> usize {
    databases.div_ceil(nodes.max(1)).clamp(1, TOGETHER)
}

/// Moves a database with what is open in it to the first node that takes it. If none does, it goes without that: nothing that is in the way for too long keeps a node
/// from being emptied.
async fn carry(
    client: &Client,
    (place, shard): (&str, &ClusterShard),
    targets: &mut Targets,
) -> Result<Move, CliError> {
    let mut order = targets.in_order();
    if shard.moving_to.is_some() {
        // Whoever moves it already does so wherever it is to go; if nobody does any more, the first will do.
        order.truncate(1);
    }
    let mut reason = "no other node takes databases".to_owned();
    let mut stays: Vec<(String, String)> = Vec::new();
    let mut not_taken_by = Vec::new();
    for to in order {
        eprintln!("{place}: {} goes to {to}", shard.shard);
        match ask(client, &shard.shard, &to, MoveTechnique::Albatross).await {
            Ok(moved) => match &moved.stayed {
                None => {
                    targets.took(&to, &not_taken_by);
                    return Ok(moved);
                }
                Some(why) => stays.push((to.clone(), why.clone())),
            },
            Err(CliError::Refused(why)) => reason = why,
            Err(error) => return Err(error),
        }
        not_taken_by.push(to);
        if stays.len() == STAYS_MAX {
            break;
        }
    }
    let Some((to, why)) = stays.first() else { return Err(CliError::Refused(reason)) };
    eprintln!("{} stayed: {why}; it goes to {to} without what is open in it", shard.shard);
    let moved = ask(client, &shard.shard, to, MoveTechnique::FlushAndMove).await?;
    if moved.stayed.is_none() {
        targets.took(to, &[]);
    }
    Ok(moved)
}

/// Tells what a drain, or its end, has come to: whether the node is drained, how many databases moved and how many stayed.
fn report(
    format: Format,
    args: &DrainArgs,
    (is_drained, notice): (bool, &str),
    (moved, stayed): (usize, usize),
) -> Result<(), CliError> {
    match format {
        Format::Table => {
            eprintln!("{notice}");
            Ok(())
        }
        Format::Json => {
            output::write_json(&json!({ "node": args.node, "drained": is_drained, "moved": moved, "stayed": stayed }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Found = Found { gone: 0, stayed: 0, refused: 0, on_their_way: 0 };

    /// What follows from each of these looks.
    fn after(looks: &[Found]) -> Vec<Next> {
        let mut until_now = Looks::default();
        looks.iter().map(|found| until_now.after(*found)).collect()
    }

    #[test]
    fn a_node_is_empty_when_two_looks_in_a_row_find_nothing() {
        assert_eq!(after(&[NOTHING, NOTHING]), [Next::Again, Next::Empty]);
        let one = Found { gone: 1, ..NOTHING };
        // What others gave it before they heard of the drain comes between two looks.
        assert_eq!(after(&[NOTHING, one, NOTHING, NOTHING]), [Next::Again, Next::Again, Next::Again, Next::Empty]);
        let comes = Found { on_their_way: 1, ..NOTHING };
        assert_eq!(after(&[NOTHING, comes, NOTHING, comes]), [Next::Again; 4]);
    }

    #[test]
    fn what_stays_is_tried_again_and_what_is_on_its_way_waited_for_both_not_for_ever() {
        let stays = Found { stayed: 1, ..NOTHING };
        let comes = Found { on_their_way: 1, ..NOTHING };
        let tried = after(&[stays; TRIES]);
        assert_eq!(
            (tried.last(), tried.iter().filter(|next| **next == Next::Again).count()),
            (Some(&Next::GiveUp), TRIES - 1)
        );
        let waited = after(&[comes; WAITS]);
        assert_eq!(
            (waited.last(), waited.iter().filter(|next| **next == Next::Again).count()),
            (Some(&Next::GiveUp), WAITS - 1)
        );
        // While others leave the node, no more can.
        let waits = Found { refused: 1, on_their_way: 2, ..NOTHING };
        let refused = Found { refused: 1, ..NOTHING };
        assert_eq!(after(&[[waits; TRIES], [refused; TRIES]].concat())[2 * TRIES - 2..], [Next::Again, Next::GiveUp]);
        let both = Found { stayed: 1, ..waits };
        assert_eq!(after(&[both; TRIES])[TRIES - 1], Next::GiveUp, "each time it is served by nobody for a moment");
        // Others that leave meanwhile make it no more often.
        let gone = Found { gone: 3, ..stays };
        assert_eq!(after(&[[gone; TRIES], [stays; TRIES]].concat())[TRIES - 1], Next::GiveUp);
    }

    fn shard(owner: &str, to: Option<&str>) -> ClusterShard {
        ClusterShard {
            shard: "tenants/1".to_owned(),
            owner: Some(owner.to_owned()),
            epoch: 1,
            state: "serving".to_owned(),
            log: None,
            moving_to: to.map(str::to_owned),
        }
    }

    #[test]
    fn databases_go_to_the_node_that_has_fewest_and_after_all_others_to_those_that_take_none() {
        let mut targets = Targets::default();
        let shards = [shard("n1", None), shard("n1", None), shard("n2", None), shard("n3", None)];
        targets.are(&["n1", "n2", "n4"], &shards);
        assert_eq!(targets.in_order(), ["n4", "n2", "n1"]);
        let without = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<_>>();
        targets.took("n2", &without(&["n4"]));
        assert_eq!(targets.in_order(), ["n1", "n2", "n4"]);
        // The next look knows it still, and nobody is left out.
        targets.are(&["n1", "n2", "n4"], &shards);
        assert_eq!(targets.in_order(), ["n2", "n1", "n4"]);
        targets.took("n4", &without(&["n2", "n1"]));
        assert_eq!(targets.in_order(), ["n4", "n2", "n1"], "it takes some again");
    }

    #[test]
    fn databases_that_sleep_go_in_shares_that_leave_nodes_even_and_are_not_too_large() {
        assert_eq!([share(100, 2), share(7, 2), share(1, 3), share(1_000, 2)], [50, 4, 1, TOGETHER]);
        assert_eq!(share(5, 0), 5, "nothing goes anywhere");
    }

    #[test]
    fn what_keeps_a_database_at_its_node_is_no_fault_of_those_it_may_go_to() {
        let mut targets = Targets::default();
        let shards = [shard("n1", None), shard("n1", None)];
        targets.are(&["n1", "n2"], &shards);
        // Something in it was in the way: it stayed at both, and goes without.
        targets.took("n2", &[]);
        targets.took("n2", &[]);
        targets.took("n2", &[]);
        assert_eq!(targets.in_order(), ["n1", "n2"], "the next one goes to who has fewest");
    }

    fn node(name: &str, serves_databases: Option<bool>, is_drained: bool) -> ClusterNode {
        ClusterNode {
            name: name.to_owned(),
            epoch: 1,
            address: None,
            services: vec!["tenants".to_owned()],
            serves_databases,
            is_this: false,
            is_drained,
            load: None,
        }
    }

    #[test]
    fn a_node_that_has_started_again_or_was_undone_is_drained_no_more() {
        let [other, open, first] =
            [("n1", true), ("n3", false), ("n3", true)].map(|(name, is_drained)| node(name, Some(true), is_drained));
        let next = ClusterNode { epoch: 2, ..first.clone() };
        let mut drained = Drained::default();
        let mut is_so = |shown: &ClusterNode| drained.is_so("n3", &[other.clone(), shown.clone()]);
        assert!(is_so(&first) && is_so(&first));
        assert!(!is_so(&open), "it was undone, or has started again");
        assert!(!is_so(&next), "it has started again, and somebody has drained it anew");
        assert!(!is_so(&other), "it has ended");
        assert!(!Drained::default().is_so("n3", std::slice::from_ref(&open)));
    }

    #[test]
    fn databases_go_to_nodes_that_serve_some_and_are_not_drained() {
        let nodes = [
            node("n1", Some(true), false),
            node("n2", Some(false), false),
            node("n3", Some(true), true),
            node("n4", None, false),
            node("n5", Some(true), false),
        ];
        assert_eq!(others(&nodes, "n5"), ["n1", "n4"], "an earlier release says only who is to serve some");
    }

    #[test]
    fn what_is_on_its_way_to_a_node_is_counted_until_it_is_there() {
        let shards = [shard("n1", Some("n3")), shard("n1", Some("n2")), shard("n3", Some("n1")), shard("n3", None)];
        assert_eq!(coming(&shards, "n3"), 1);
    }
}
