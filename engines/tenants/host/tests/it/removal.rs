//! Tenants that are removed.

use std::path::Path;

use savanna_epoch::NodeEpoch;
use savanna_tenants_host::{Host, HostOptions, Keeping};

fn start(directory: &Path) -> Host {
    let keeping = Keeping::local(directory);
    Host::start(HostOptions::alone(keeping, NodeEpoch(1), 2, None).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_nobody_waits_for_is_made_or_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let host = tokio::task::block_in_place(|| start(directory.path()));
    let tenants = host.tenants();
    tenants.create("shop").await.unwrap();
    {
        let removal = tenants.remove("shop");
        tokio::pin!(removal);
        tokio::select! {
            biased;
            _ = &mut removal => {}
            () = std::future::ready(()) => {}
        }
    }
    match tenants.remove("shop").await {
        Ok(()) => {}
        Err(error) => assert_eq!(error.state, "3D000"),
    }
    tenants.create("shop").await.unwrap();
    tokio::task::block_in_place(|| host.stop().unwrap());
}
