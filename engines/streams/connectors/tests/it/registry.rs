use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_model::source::Connectors;

use crate::{checked, source, table};

#[test]
fn an_unknown_connector_is_answered_with_the_known_ones() {
    let error = checked(table(&[], &[("connector", "pulsar")])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "connector 'pulsar' does not exist; there are nexmark, datagen, file, kafka, postgres, postgres-cdc, redis, delta, webhook, function, stdin, print, blackhole"
    );
    let error = checked(table(&[], &[])).unwrap_err();
    assert!(
        error.to_string().starts_with("table t needs option 'connector': one of nexmark, datagen, file"),
        "{error}"
    );
}

#[test]
fn a_sink_is_no_source_and_a_source_no_sink() {
    let print = table(&[], &[("connector", "print")]);
    let error = source(&print).unwrap_err().to_string();
    assert_eq!(
        error,
        "table t cannot be read, because connector print only writes; the connectors that read are nexmark, datagen, file, kafka, postgres, postgres-cdc, redis, stdin"
    );
    let nexmark = checked(table(&[], &[("connector", "nexmark")])).unwrap();
    let Err(error) = BuiltinConnectors::new().sink(&nexmark, nexmark.schema()) else { panic!("a sink was made") };
    assert!(
        error.to_string().ends_with(
            "connectors that write are file, kafka, postgres, redis, delta, webhook, function, print, blackhole"
        ),
        "{error}"
    );
}

#[test]
fn every_option_is_listed_and_documented() {
    let connectors = BuiltinConnectors::new();
    let reference = connectors.reference();
    for connector in connectors.list() {
        assert!(reference.contains(&format!("## {}\n", connector.name)));
        for option in connector.options.split(", ").filter(|o| !o.is_empty()) {
            let name = option.split(' ').next().unwrap();
            if !name.is_empty() {
                assert!(reference.contains(&format!("| `{name}` |")), "{name} of {}", connector.name);
            }
        }
    }
}

/// What users read is what the connectors say.
#[test]
fn the_reference_of_all_options_is_up_to_date() {
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/connectors.md");
    const HEAD: &str = "# Connectors and their options\n\nWritten by the connectors themselves. What they do is in [streams.md](streams.md#connectors). Every table may have \
        `connector`, and `lookup.*`, `late-data` and `scan.watermark.*` as told there.\n\n";
    let expected = format!("{HEAD}{}", BuiltinConnectors::new().reference().trim_end()) + "\n";
    if std::env::var_os("WRITE_REFERENCE").is_some() {
        std::fs::write(PATH, &expected).unwrap();
    }
    let found = std::fs::read_to_string(PATH).unwrap_or_default();
    let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{PATH} is not what connectors say, from {differs:?} on; WRITE_REFERENCE=1 in the environment of this test writes it anew"
    );
}
