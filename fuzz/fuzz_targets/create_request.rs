//! The request that makes a sandbox, from its bytes to its problems.

#![no_main]

use api::error::ErrorBody;
use api::json;
use api::sandbox::CreateSandboxRequest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let request: CreateSandboxRequest = match json::from_slice(body) {
        Ok(request) => request,
        Err(problem) => {
            assert!(problem.to_string().len() < 4096);
            return;
        }
    };
    if let Err(problems) = request.validate() {
        assert!(!problems.is_empty());
        let answer = serde_json::to_vec(&ErrorBody::from_problems("body", &problems));
        assert!(answer.expect("an answer is plain data").len() < 512 * 1024);
    }
    let written = serde_json::to_vec(&request).expect("a request is plain data");
    assert_eq!(json::from_slice(&written), Ok(request));
});
