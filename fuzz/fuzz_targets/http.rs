//! A client of the control API that sends anything.

#![no_main]

use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use libfuzzer_sys::fuzz_target;
use savanna_fuzz::{NoEngine, talk};
use savanna_http::types::{ClusterNode, ClusterShard, NodeStatus, Setting};
use savanna_http::{Figure, HttpFace, HttpLimits, NodeView, SharedNodes, SharedTenants};

#[derive(Debug)]
struct NoNode;

impl NodeView for NoNode {
    fn status(&self) -> NodeStatus {
        NodeStatus {
            node: "n".into(),
            version: "0".into(),
            pid: 1,
            uptime_seconds: 0.0,
            data_dir: None,
            services: Vec::new(),
            lease: None,
        }
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn nodes(&self) -> Vec<ClusterNode> {
        Vec::new()
    }

    fn shards(&self) -> Vec<ClusterShard> {
        Vec::new()
    }

    fn others(&self) -> Option<SharedNodes> {
        None
    }

    fn tenants(&self) -> Option<SharedTenants> {
        None
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let face = HttpFace::new(Arc::new(NoEngine), Arc::new(NoNode), HttpLimits::default());
    let service = TowerToHyperService::new(face.router());
    talk(bytes, |stream| async {
        // A request that is none ends the connection with an error, which is the point.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    });
});
