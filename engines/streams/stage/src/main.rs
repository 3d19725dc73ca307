//! A stage of a query as a function: the `bootstrap` of its zip.
//!
//! One program for all queries. Its environment says which stage it is (`SAVANNA_STAGE`), or the first call does; then it answers calls,
//! one at a time, until it is ended. It speaks Lambda's Runtime API of 2018-06-01.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod libc;
mod runtime_api;

use std::process::ExitCode;
use std::thread;

use savanna_streams_runtime::cloud::{ENVIRONMENT, StageFunction};

use crate::runtime_api::{Failure, RuntimeApi};

/// Bytes of the stack: expressions are computed by going down into them.
const STACK_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    let Ok(address) = std::env::var("AWS_LAMBDA_RUNTIME_API") else {
        eprintln!(
            "savanna-stage is a function of AWS Lambda, which `savanna sql --on functions` starts; it does nothing by itself"
        );
        return ExitCode::from(2);
    };
    let serving = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(&address));
    match serving.map(thread::JoinHandle::join) {
        Ok(Ok(Failure(why))) => eprintln!("savanna-stage: {why}"),
        Ok(Err(_)) => eprintln!("savanna-stage: it panicked"),
        Err(error) => eprintln!("savanna-stage: no thread: {error}"),
    }
    ExitCode::FAILURE
}

/// Answers calls; returns why it cannot go on.
fn serve(address: &str) -> Failure {
    let mut api = RuntimeApi::new(address);
    let context = std::env::var(ENVIRONMENT).ok();
    let mut stage = match StageFunction::new(context.as_deref(), savanna_streams_functions::functions()) {
        Ok(stage) => stage,
        Err(error) => {
            let failed = Failure(error.to_string());
            return api.init_failed(&failed.0).err().unwrap_or(failed);
        }
    };
    loop {
        let answered = api.next().and_then(|call| {
            let answer = stage.answer(&call.payload);
            api.answer(&call.request, &answer)
        });
        if let Err(failed) = answered {
            return failed;
        }
    }
}
