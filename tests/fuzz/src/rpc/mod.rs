//! Fuzzes the whole service in process: any calls in any order, with any content that the contract allows.
//!
//! No call may panic or return an internal error. Requests are generated from the descriptors of the contract, so new
//! fields are fuzzed automatically. Values of replies (ids, etags, tokens) are used in later requests.

mod requests;
mod server;

use arbitrary::Unstructured;
use tonic::Code;

use requests::Requests;
use server::Server;

/// Maximum number of calls per run.
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
        // These codes stand for defects. The service has other codes for failures that a caller can cause.
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
