//! `savanna tenants`.

mod backup;

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_http::types::{NewTenant, Tenant, Tenants};
use savanna_node::Config;
use serde::Serialize;
use serde_json::json;

use crate::args::{Format, OneTenant, Remote, TenantsCommand, Top};
use crate::client::{Client, path_part};
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn run(config: &Config, format: Format, command: &TenantsCommand) -> Result<Exit, CliError> {
    let client = |remote: &Remote| Client::new(remote.url.as_deref(), &remote.trust, config.node());
    match command {
        TenantsCommand::List(remote) => list(&client(remote)?, format).await,
        TenantsCommand::Top(top) => show_top(&client(&top.remote)?, format, top).await,
        TenantsCommand::Create(one) => create(&client(&one.remote)?, format, one).await,
        TenantsCommand::Drop(one) => drop_one(&client(&one.remote)?, format, one).await,
        TenantsCommand::Backup(of) => {
            let bytes = backup::write(&client(&of.tenant.remote)?, &of.tenant.tenant, &of.place).await?;
            done(format, &of.tenant.tenant, "backed_up", &format!("is in {} ({bytes} bytes)", of.place))
        }
        TenantsCommand::Restore(of) => {
            backup::restore(&client(&of.tenant.remote)?, &of.tenant.tenant, &of.place).await?;
            done(format, &of.tenant.tenant, "restored", "is there")
        }
    }
}

async fn all(client: &Client) -> Result<Vec<Tenant>, CliError> {
    let listed: Tenants = client.get("tenants").await.map_err(|error| client.explain(error))?;
    Ok(listed.tenants)
}

async fn list(client: &Client, format: Format) -> Result<Exit, CliError> {
    let tenants = all(client).await?;
    if format == Format::Json {
        output::write_json(&Tenants { tenants })?;
        return Ok(Exit::Done);
    }
    let row = |tenant: &Tenant| {
        [&tenant.sessions, &tenant.commits, &tenant.rollbacks].map(ToString::to_string).into_iter().collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> =
        tenants.iter().map(|tenant| [vec![tenant.name.clone()], row(tenant)].concat()).collect();
    output::write(output::text_table(&["tenant", "sessions", "commits", "rollbacks"], &rows).as_bytes())?;
    Ok(Exit::Done)
}

/// What a tenant does, each second.
#[derive(Debug, Serialize)]
struct Busy {
    name: String,
    sessions: u64,
    commits_per_second: f64,
    rollbacks_per_second: f64,
}

async fn show_top(client: &Client, format: Format, top: &Top) -> Result<Exit, CliError> {
    let before: BTreeMap<String, Tenant> =
        all(client).await?.into_iter().map(|tenant| (tenant.name.clone(), tenant)).collect();
    tokio::time::sleep(Duration::from_secs(top.seconds)).await;
    let mut busy = busy(&before, all(client).await?, top.seconds as f64);
    busy.truncate(top.count);
    if format == Format::Json {
        output::write_json(&json!({ "tenants": busy }))?;
        return Ok(Exit::Done);
    }
    let row = |busy: &Busy| {
        let rate = |rate: f64| format!("{rate:.1}");
        vec![
            busy.name.clone(),
            busy.sessions.to_string(),
            rate(busy.commits_per_second),
            rate(busy.rollbacks_per_second),
        ]
    };
    let rows: Vec<Vec<String>> = busy.iter().map(row).collect();
    output::write(output::text_table(&["tenant", "sessions", "commits/s", "rollbacks/s"], &rows).as_bytes())?;
    Ok(Exit::Done)
}

/// What tenants did between two counts, the busiest first.
fn busy(before: &BTreeMap<String, Tenant>, after: Vec<Tenant>, seconds: f64) -> Vec<Busy> {
    let mut busy: Vec<Busy> = after
        .into_iter()
        .map(|tenant| {
            // One that was made meanwhile, or whose node began again, has done all that it has done since.
            let earlier = before.get(&tenant.name).filter(|earlier| earlier.commits <= tenant.commits);
            let rate = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0)) as f64 / seconds;
            Busy {
                commits_per_second: rate(tenant.commits, earlier.map(|earlier| earlier.commits)),
                rollbacks_per_second: rate(tenant.rollbacks, earlier.map(|earlier| earlier.rollbacks)),
                name: tenant.name,
                sessions: tenant.sessions,
            }
        })
        .collect();
    busy.sort_by(|a, b| b.commits_per_second.total_cmp(&a.commits_per_second).then_with(|| a.name.cmp(&b.name)));
    busy
}

async fn create(client: &Client, format: Format, one: &OneTenant) -> Result<Exit, CliError> {
    let body = NewTenant { name: one.tenant.clone() };
    client.create("tenants", &body).await.map_err(|error| client.explain(error))?;
    done(format, &one.tenant, "created", "is there")
}

async fn drop_one(client: &Client, format: Format, one: &OneTenant) -> Result<Exit, CliError> {
    let path = format!("tenants/{}", path_part(&one.tenant));
    client.delete(&path).await.map_err(|error| client.explain(error))?;
    done(format, &one.tenant, "dropped", "was dropped with all that was in it")
}

fn done(format: Format, tenant: &str, what: &str, words: &str) -> Result<Exit, CliError> {
    match format {
        Format::Json => output::write_json(&json!({ "tenant": tenant, what: true }))?,
        Format::Table => output::write(format!("tenant {tenant} {words}\n").as_bytes())?,
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, commits: u64, rollbacks: u64) -> Tenant {
        Tenant { name: name.to_owned(), sessions: 1, commits, rollbacks }
    }

    #[test]
    fn the_busiest_come_first_and_new_ones_count_from_nothing() {
        let before = [("a", 100, 5), ("b", 10, 0)]
            .map(|(name, commits, rollbacks)| (name.to_owned(), tenant(name, commits, rollbacks)));
        let after = vec![tenant("a", 110, 5), tenant("b", 50, 2), tenant("c", 4, 0)];
        let shown: Vec<_> = busy(&before.into(), after, 2.0)
            .into_iter()
            .map(|busy| (busy.name, busy.commits_per_second, busy.rollbacks_per_second))
            .collect();
        assert_eq!(shown, [("b".to_owned(), 20.0, 1.0), ("a".to_owned(), 5.0, 0.0), ("c".to_owned(), 2.0, 0.0)]);
    }
}
