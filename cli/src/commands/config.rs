//! `savanna config show`.

use savanna_http::types::{Setting, Settings};
use savanna_node::Config;
use savanna_node::config::SETTINGS;

use crate::args::{Format, OfNode};
use crate::client::{Client, of_node};
use crate::error::{CliError, Exit};
use crate::output;

/// The settings of this command, or of a running node if one is named.
pub(crate) async fn show(config: &Config, format: Format, of: &OfNode) -> Result<Exit, CliError> {
    let settings = match (&of.node, &of.remote.url) {
        (None, None) => config.settings(),
        (node, url) => {
            let client = Client::new(url.as_deref(), &of.remote.trust, config.node())?;
            let told: Settings =
                client.get(&of_node(node.as_deref(), "config")).await.map_err(|error| client.explain(error))?;
            told.settings
        }
    };
    if format == Format::Json {
        output::write_json(&Settings { settings })?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = settings.into_iter().map(row).collect();
    output::write(output::text_table(&["setting", "value", "from", "what it is"], &rows).as_bytes())?;
    Ok(Exit::Done)
}

/// A node of another release may have settings that this one does not know.
fn row(setting: Setting) -> Vec<String> {
    let help = SETTINGS.iter().find(|spec| spec.key == setting.key).map_or("", |spec| spec.help);
    vec![setting.key, setting.value, setting.source, help.to_owned()]
}
