//! An instance of a function that says anything to its Runtime API: it answers the one request that it works on, once, or none.

#![no_main]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use savanna_functions_host::core::Outcome;
use savanna_functions_host::runtime_api::{Delivery, Work, serve_instance};
use savanna_functions_host::{ANSWER_MAX, Lineage};
use savanna_fuzz::talk;
use tokio::sync::{Semaphore, oneshot};

const REQUEST: &str = "8476a536-e9f4-11e8-9739-2dfe598c3fcd";

/// What the instance does.
#[derive(Default)]
struct Done {
    is_working: bool,
    answers: u32,
    deliveries: u32,
}

#[derive(Clone, Default)]
struct Instance(Arc<Mutex<Done>>);

impl Work for Instance {
    fn next(&self) -> Option<oneshot::Receiver<Delivery>> {
        let mut done = self.0.lock().expect("nobody has panicked");
        if done.is_working {
            return None;
        }
        (done.is_working, done.deliveries) = (true, done.deliveries + 1);
        let (sender, receiver) = oneshot::channel();
        let delivery = Delivery {
            request: REQUEST.into(),
            client_context: Some("{\"custom\": \"\\u00e4\"}".into()),
            lineage: Lineage::default().with("f").0.to_string(),
            payload: Bytes::from_static(b"{}"),
            deadline: u64::MAX,
            arn: "arn:aws:lambda:us-east-1:000000000000:function:f".into(),
        };
        sender.send(delivery).expect("it waits");
        Some(receiver)
    }

    fn works_on(&self, request: &str) -> bool {
        request == REQUEST && self.0.lock().expect("nobody has panicked").is_working
    }

    fn answered(&self, request: &str, outcome: Outcome, said: Bytes) -> bool {
        assert!(said.len() <= ANSWER_MAX && matches!(outcome, Outcome::Success | Outcome::Failed));
        let mut done = self.0.lock().expect("nobody has panicked");
        let is_own = done.is_working && request == REQUEST;
        if is_own {
            (done.is_working, done.answers) = (false, done.answers + 1);
        }
        is_own
    }

    fn init_failed(&self, said: Bytes) {
        assert!(said.len() <= ANSWER_MAX);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let instance = Instance::default();
    talk(bytes, |stream| serve_instance(instance.clone(), Arc::new(Semaphore::new(1)), stream));
    let done = instance.0.lock().expect("nobody has panicked");
    assert!(done.answers <= done.deliveries);
});
