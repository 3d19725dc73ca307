//! The rows of `pg_stat_get_activity`: connections, as who asks may see them.

use std::net::IpAddr;

use savanna_tenants_values::{
    types::Type,
    value::{Value, network::Network},
};

use crate::{
    backends::{Asker, Backend},
    doing::Noted,
};

/// Names and types of a row.
pub(super) fn columns() -> Vec<(&'static str, Type)> {
    vec![
        ("datname", Type::Text),
        ("pid", Type::Int4),
        ("usename", Type::Text),
        ("application_name", Type::Text),
        ("state", Type::Text),
        ("query", Type::Text),
        ("wait_event_type", Type::Text),
        ("wait_event", Type::Text),
        ("xact_start", Type::Timestamptz),
        ("query_start", Type::Timestamptz),
        ("backend_start", Type::Timestamptz),
        ("state_change", Type::Timestamptz),
        ("client_addr", Type::Inet),
        ("client_port", Type::Int4),
    ]
}

/// The row of a connection. As in PostgreSQL, those of other users are there, but not what they do.
pub(super) fn row(asker: Asker<'_>, backend: &Backend) -> Vec<Value> {
    let text = |text: &str| Value::Text(text.to_owned());
    let Noted { application, client, connected, transaction, statement, changed, phase, wait, text: query } =
        &backend.noted;
    let mut row = vec![
        text(&backend.database),
        Value::Int(backend.pid.into()),
        text(&backend.user),
        if backend.node.is_none() { text(application) } else { Value::Null },
    ];
    if !asker.commands(backend) {
        row.extend([Value::Null, text("<insufficient privilege>")]);
        row.resize(columns().len(), Value::Null);
        return row;
    }
    let time = |micros: &Option<i64>| micros.map_or(Value::Null, Value::Timestamp);
    let is_known = backend.node.is_none();
    let waits_for = match (backend.active, wait) {
        (true, Some(wait)) => Some(wait.names()),
        (false, _) if is_known => Some(("Client", "ClientRead")),
        _ => None,
    };
    let state = if backend.active { "active" } else { phase.name() };
    let name = |name: Option<&str>| name.map_or(Value::Null, text);
    row.extend([
        text(state),
        name(query.as_deref()),
        name(waits_for.map(|names| names.0)),
        name(waits_for.map(|names| names.1)),
        time(transaction),
        time(statement),
        time(connected),
        time(changed),
        client.map_or(Value::Null, |client| Value::Network(network(client.ip()))),
        client.map_or(Value::Null, |client| Value::Int(client.port().into())),
    ]);
    row
}

fn network(ip: IpAddr) -> Network {
    match ip.to_canonical() {
        IpAddr::V4(ip) => Network::from(ip),
        IpAddr::V6(ip) => Network::from(ip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doing::{Phase, Wait};

    fn backend() -> Backend {
        let mut noted = Noted {
            application: "till".to_owned(),
            client: Some("[::ffff:10.1.2.3]:4000".parse().unwrap()),
            ..Noted::default()
        };
        noted.begin("SELECT secret FROM t".into(), 7);
        let [database, user] = ["shop", "ann"].map(str::to_owned);
        Backend { pid: 1, database, user, active: true, node: None, noted }
    }

    fn shown(asker: Asker<'_>, backend: &Backend, name: &str) -> Value {
        let at = columns().iter().position(|column| column.0 == name).unwrap();
        row(asker, backend)[at].clone()
    }

    #[test]
    fn what_others_do_is_seen_by_their_user_and_by_administrators() {
        let ann = Asker { user: "ann", database: "shop", administrator: false };
        let bob = Asker { user: "bob", ..ann };
        let root = Asker { administrator: true, ..bob };
        for asker in [ann, root] {
            assert_eq!(shown(asker, &backend(), "query"), Value::Text("SELECT secret FROM t".to_owned()));
            assert_eq!(shown(asker, &backend(), "client_port"), Value::Int(4000));
        }
        assert_eq!(shown(bob, &backend(), "query"), Value::Text("<insufficient privilege>".to_owned()));
        let hidden = ["state", "wait_event", "xact_start", "query_start", "state_change", "client_addr", "client_port"];
        for name in hidden {
            assert_eq!(shown(bob, &backend(), name), Value::Null, "{name}");
        }
        assert_eq!(shown(bob, &backend(), "application_name"), Value::Text("till".to_owned()));
        assert_eq!(row(bob, &backend()).len(), columns().len());
        assert_eq!(row(ann, &backend()).len(), columns().len());
    }

    #[test]
    fn a_connection_says_for_what_it_waits() {
        let ann = Asker { user: "ann", database: "shop", administrator: false };
        let mut backend = backend();
        assert_eq!(shown(ann, &backend, "wait_event"), Value::Null);
        backend.noted.wait = Some(Wait::Lock);
        assert_eq!(shown(ann, &backend, "wait_event_type"), Value::Text("Lock".to_owned()));
        backend.noted.rest(Phase::InFailedTransaction, 9);
        backend.active = false;
        assert_eq!(shown(ann, &backend, "state"), Value::Text("idle in transaction (aborted)".to_owned()));
        assert_eq!(shown(ann, &backend, "wait_event"), Value::Text("ClientRead".to_owned()));
        backend.node = Some("n2".to_owned());
        assert_eq!(shown(ann, &backend, "wait_event"), Value::Null, "nobody has said");
    }
}
