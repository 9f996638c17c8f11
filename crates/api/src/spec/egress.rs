//! The egress contract. Errors are plain text, as its published clients expect.

use super::document::{Frame, Schemas};
use super::operation::{Content, Operation, Shape, TEXT};
use crate::egress::policy::PolicyStatus;
use crate::egress::vault::{
    CreateVaultRequest, CredentialBindingListResponse, CredentialListResponse, MutateVaultRequest,
    VaultState,
};
use crate::endpoint::EGRESS_AUTH_HEADER;

const STATUS: Shape = Shape::Named("PolicyStatusResponse");
const STATE: Shape = Shape::Named("CredentialVaultState");
const RULES: Shape = Shape::ListOf(&Shape::Named("NetworkRule"));
const TARGETS: Shape = Shape::ListOf(&Shape::Text);

pub(super) fn frame() -> Frame {
    Frame {
        title: "OpenSandbox egress",
        description: "What one sandbox may reach, and the credentials that are put into its \
                      requests on the way out.",
        servers: &["/"],
        credential: (
            "egressToken",
            EGRESS_AUTH_HEADER,
            "The token of this sandbox's egress API.",
        ),
        schemas: Schemas::default()
            .with::<PolicyStatus>()
            .with::<CreateVaultRequest>()
            .with::<MutateVaultRequest>()
            .with::<VaultState>()
            .with::<CredentialListResponse>()
            .with::<CredentialBindingListResponse>(),
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = policy();
    operations.extend(vault());
    operations.push(
        Operation::new("GET", "/healthz", "getHealth", "Whether the API works.")
            .extension()
            .open()
            .answers_with(200, "It works.", &PLAIN),
    );
    let guarded = |operation: Operation| operation.errors_with(&[401, 405, 500, 503], &PLAIN);
    operations.into_iter().map(guarded).collect()
}

const PLAIN: [Content; 1] = [Content {
    media: TEXT,
    shape: Shape::Text,
}];

fn policy() -> Vec<Operation> {
    let new = |method, id, summary| Operation::new(method, "/policy", id, summary);
    vec![
        new("GET", "getPolicy", "Shows the policy.").answers_json(200, "The policy.", STATUS),
        new(
            "PATCH",
            "patchPolicy",
            "Puts rules before the others; known targets are replaced.",
        )
        .takes(RULES)
        .answers_json(200, "The rules are in force.", STATUS)
        .errors_with(&[400, 413], &PLAIN),
        new(
            "DELETE",
            "deletePolicyTargets",
            "Removes the rules of these targets.",
        )
        .takes(TARGETS)
        .answers_json(200, "The rules are gone.", STATUS)
        .errors_with(&[400, 413], &PLAIN),
        new(
            "PUT",
            "putPolicy",
            "Replaces the policy; an empty body denies everything.",
        )
        .extension()
        .may_take(Shape::Named("NetworkPolicy"))
        .answers_json(200, "The policy is in force.", STATUS)
        .errors_with(&[400, 413], &PLAIN),
        new("POST", "postPolicy", "The same as PUT.")
            .extension()
            .may_take(Shape::Named("NetworkPolicy"))
            .answers_json(200, "The policy is in force.", STATUS)
            .errors_with(&[400, 413], &PLAIN),
    ]
}

fn vault() -> Vec<Operation> {
    let new = |method, path, id, summary| Operation::new(method, path, id, summary);
    let root = "/credential-vault";
    vec![
        new("POST", root, "createCredentialVault", "Makes the vault.")
            .takes(Shape::Named("CredentialVaultCreateRequest"))
            .answers_json(201, "The vault is made.", STATE)
            .errors_with(&[400, 409, 412, 413, 426], &PLAIN),
        new(
            "GET",
            root,
            "getCredentialVault",
            "Shows the vault, without any secret.",
        )
        .answers_json(200, "The vault.", STATE)
        .errors_with(&[404], &PLAIN),
        new(
            "PATCH",
            root,
            "patchCredentialVault",
            "Changes the vault, all or nothing.",
        )
        .takes(Shape::Named("CredentialVaultMutationRequest"))
        .answers_json(200, "The vault is changed.", STATE)
        .errors_with(&[400, 404, 409, 412, 413, 426], &PLAIN),
        new(
            "DELETE",
            root,
            "deleteCredentialVault",
            "Removes the vault.",
        )
        .answers(204, "The vault is gone.")
        .errors_with(&[404, 426], &PLAIN),
        new(
            "GET",
            "/credential-vault/credentials",
            "listCredentials",
            "Lists the secrets' names.",
        )
        .answers_json(200, "The names.", Shape::Named("CredentialListResponse"))
        .errors_with(&[404], &PLAIN),
        new(
            "GET",
            "/credential-vault/credentials/{credential_name}",
            "getCredential",
            "Shows what may be told of a secret.",
        )
        .answers_json(200, "What may be told.", Shape::Named("CredentialMetadata"))
        .errors_with(&[404], &PLAIN),
        new(
            "GET",
            "/credential-vault/bindings",
            "listCredentialBindings",
            "Lists where secrets go.",
        )
        .answers_json(
            200,
            "The bindings.",
            Shape::Named("CredentialBindingListResponse"),
        )
        .errors_with(&[404], &PLAIN),
        new(
            "GET",
            "/credential-vault/bindings/{binding_name}",
            "getCredentialBinding",
            "Shows where a secret goes.",
        )
        .answers_json(
            200,
            "The binding.",
            Shape::Named("CredentialBindingMetadata"),
        )
        .errors_with(&[404], &PLAIN),
    ]
}
