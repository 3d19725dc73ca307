//! Code in an object store.

use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt as _;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt as _};
use savanna_functions_host::Isolation;
use savanna_functions_host::catalog::Change;
use serde_json::json;

use crate::support::{Host, Parts, wait};

fn host(directory: &Path, epoch: u64, store: &Arc<InMemory>) -> Host {
    let store = Some((Arc::clone(store) as Arc<dyn ObjectStore>, "a/code".into()));
    Host::try_open(directory, epoch, Isolation::Preferred, 8, Parts { store, ..Parts::default() }).unwrap()
}

/// Paths of all objects.
fn objects(host: &Host, store: &InMemory) -> Vec<object_store::path::Path> {
    let listed = store.list(None).map_ok(|object| object.location).try_collect();
    host.runtime.block_on(listed).unwrap()
}

#[test]
fn code_in_an_object_store_is_there_when_the_disk_has_none() {
    let (directory, store) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    let begun = host(directory.path(), 1, &store);
    begun.python("f", "def handler(event, context):\n    return event\n");
    assert_eq!(begun.answer("f", &json!(1)), json!(1));
    let paths = objects(&begun, &store);
    assert!(paths.len() == 1 && paths[0].as_ref().starts_with("a/code/"), "{paths:?}");
    begun.close();
    std::fs::remove_dir_all(directory.path().join("functions")).unwrap();
    let again = host(directory.path(), 2, &store);
    assert_eq!(again.answer("f", &json!(2)), json!(2));
    let hash = paths[0].filename().unwrap().trim_end_matches(".zip").to_owned();
    assert!(again.runtime.block_on(again.functions.zip(&hash)).is_ok());
    let removed = again.functions.change(|_, _| Ok((Some(Change::Remove("f".to_owned())), ())));
    again.runtime.block_on(removed).unwrap();
    wait("it is removed with its function", || objects(&again, &store).is_empty());
    again.close();
}

#[test]
fn code_that_was_kept_before_there_was_a_store_runs_and_is_removed() {
    let (directory, store) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    let begun = Host::try_open(directory.path(), 1, Isolation::Preferred, 8, Parts::default()).unwrap();
    begun.python("f", "def handler(event, context):\n    return event\n");
    begun.close();
    let again = host(directory.path(), 2, &store);
    assert_eq!(again.answer("f", &json!(1)), json!(1));
    let removed = again.functions.change(|_, _| Ok((Some(Change::Remove("f".to_owned())), ())));
    again.runtime.block_on(removed).unwrap();
    let kept = directory.path().join("functions/code");
    wait("it is removed with its function", || std::fs::read_dir(&kept).unwrap().next().is_none());
    again.close();
}

#[test]
fn code_that_is_not_what_its_client_has_sent_does_not_run() {
    let (directory, store) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    let begun = host(directory.path(), 1, &store);
    begun.python("f", "def handler(event, context):\n    return 'own'\n");
    begun.python("g", "def handler(event, context):\n    return 'other'\n");
    let paths = objects(&begun, &store);
    begun.runtime.block_on(async {
        store.copy(&paths[0], &"kept".into()).await.unwrap();
        store.copy(&paths[1], &paths[0]).await.unwrap();
        store.copy(&"kept".into(), &paths[1]).await.unwrap();
    });
    begun.close();
    let again = host(directory.path(), 2, &store);
    for name in ["f", "g"] {
        let (succeeded, answer) = again.call(name, &json!({}));
        assert!(!succeeded && answer["errorType"] == "Runtime.CodeUnavailable", "{answer}");
    }
    again.close();
}
