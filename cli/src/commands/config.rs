//! `savanna config show`.

use savanna_http::types::Settings;
use savanna_node::Config;
use savanna_node::config::SETTINGS;

use crate::args::Format;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) fn show(config: &Config, format: Format) -> Result<Exit, CliError> {
    let settings = config.settings();
    if format == Format::Json {
        output::write_json(&Settings { settings })?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = settings
        .into_iter()
        .zip(SETTINGS)
        .map(|(setting, spec)| vec![setting.key, setting.value, setting.source, spec.help.to_owned()])
        .collect();
    output::write(output::text_table(&["setting", "value", "from", "what it is"], &rows).as_bytes())?;
    Ok(Exit::Done)
}
