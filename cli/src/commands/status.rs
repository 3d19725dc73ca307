//! `savanna status`.

use savanna_http::types::NodeStatus;
use savanna_node::Config;

use crate::args::{Format, OfNode};
use crate::client::{Client, of_node};
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn run(config: &Config, format: Format, of: &OfNode) -> Result<Exit, CliError> {
    let client = Client::new(of.remote.url.as_deref(), &of.remote.trust, config.node())?;
    let path = of_node(of.node.as_deref(), "status");
    let status: NodeStatus = client.get(&path).await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => output::write_json(&status)?,
        Format::Table => output::write(text(&status).as_bytes())?,
    }
    Ok(Exit::Done)
}

/// A node for people: what it is, then its services.
pub(crate) fn text(status: &NodeStatus) -> String {
    let mut text = format!(
        "node {} (Savanna {}, process {}), up {:.0} s",
        status.node, status.version, status.pid, status.uptime_seconds
    );
    if let Some(directory) = &status.data_dir {
        text.push_str(&format!(", data in {directory}"));
    }
    if let Some(lease) = &status.lease {
        let serving = if lease.serving { "serving" } else { "NOT serving" };
        text.push_str(&format!(", {serving} under lease epoch {}", lease.epoch));
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = status
        .services
        .iter()
        .map(|service| {
            let detail = service.address.clone().or_else(|| service.reason.clone());
            vec![service.service.clone(), service.state.to_string(), detail.unwrap_or_default()]
        })
        .collect();
    text.push_str(&output::text_table(&["service", "state", "address or reason"], &rows));
    text
}

#[cfg(test)]
mod tests {
    use savanna_http::types::{LeaseStatus, ServiceState, ServiceStatus};

    use super::*;

    #[test]
    fn a_failed_service_shows_its_reason_where_others_show_their_address() {
        let service = |service: &str, state, address: Option<&str>, reason: Option<&str>| ServiceStatus {
            service: service.into(),
            state,
            address: address.map(str::to_owned),
            reason: reason.map(str::to_owned),
        };
        let status = NodeStatus {
            node: "dev".into(),
            version: "0.1.0".into(),
            pid: 7,
            uptime_seconds: 1.2,
            data_dir: Some("/d".into()),
            services: vec![
                service("http", ServiceState::Running, Some("127.0.0.1:8080"), None),
                service("pgwire", ServiceState::Failed, None, Some("127.0.0.1:5434 is taken")),
            ],
            lease: Some(LeaseStatus { name: "dev".into(), epoch: 3, serving: true, ttl_ms: 3000 }),
        };
        assert_eq!(
            text(&status),
            "node dev (Savanna 0.1.0, process 7), up 1 s, data in /d, serving under lease epoch 3\n\
             service  state    address or reason\n\
             http     running  127.0.0.1:8080\n\
             pgwire   failed   127.0.0.1:5434 is taken\n"
        );
    }
}
