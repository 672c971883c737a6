//! The whole service, in process: any calls in any order, with whatever the contract lets a caller say.
//!
//! No call may panic or be answered with an internal error. Requests are made by the contract's own
//! descriptors, so that a new field is fuzzed from the day it is there; what replies say (ids, etags,
//! tokens) comes back in later requests.

mod requests;
mod server;

use arbitrary::Unstructured;
use tonic::Code;

use requests::Requests;
use server::Server;

/// The most calls of one run.
const MAX_CALLS: usize = 24;

pub(crate) fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let mut requests = Requests::new();
    let server = Server::new();
    for _ in 0..MAX_CALLS {
        if bytes.is_empty() {
            break;
        }
        let Ok(call) = requests.next(&mut bytes) else {
            break;
        };
        let answer = server.call(&call.path, &call.body);
        let is_ours = !matches!(answer.code, Code::Internal | Code::Unknown | Code::DataLoss);
        assert!(
            is_ours,
            "{} answers {:?}: {}\n{:?}",
            call.path, answer.code, answer.message, call.request
        );
        for body in &answer.bodies {
            requests.learn(&call.reply, body);
        }
    }
}
