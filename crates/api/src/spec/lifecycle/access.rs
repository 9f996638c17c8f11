//! Keys, tokens and tenants: ours, not part of the published protocol.

use super::super::operation::{Operation, Shape};

fn new(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new(method, path, id, summary)
        .extension()
        .errors(&[403])
}

pub(super) fn keys() -> Vec<Operation> {
    const NEW: Shape = Shape::Named("NewApiKey");
    vec![
        new(
            "GET",
            "/keys",
            "listKeys",
            "Lists the keys of the caller's tenant; administrators of the built-in tenant see all.",
        )
        .answers_json(200, "The keys.", Shape::Named("ListKeysResponse")),
        new("POST", "/keys", "createKey", "Makes a key.")
            .audited("key.create")
            .takes(Shape::Named("CreateKeyRequest"))
            .answers_json(201, "The key, whose value is shown this once.", NEW)
            .errors(&[404, 409]),
        new(
            "DELETE",
            "/keys/{keyId}",
            "deleteKey",
            "Revokes a key with its tokens; what is open with them ends.",
        )
        .audited("key.revoke")
        .answers(204, "It is revoked.")
        .errors(&[404, 409]),
        new(
            "POST",
            "/keys/{keyId}/rotate",
            "rotateKey",
            "Gives a key a new value; what is open with the old one ends.",
        )
        .audited("key.rotate")
        .may_take(Shape::Named("RotateKeyRequest"))
        .answers_json(200, "The key, whose new value is shown this once.", NEW)
        .errors(&[404, 409]),
        new(
            "POST",
            "/tokens",
            "createToken",
            "Makes a key for a short time from the key of this request, which may do no more.",
        )
        .audited("token.create")
        .may_take(Shape::Named("CreateTokenRequest"))
        .answers_json(201, "The token, whose value is shown this once.", NEW)
        .errors(&[404, 409]),
    ]
}

pub(super) fn tenants() -> Vec<Operation> {
    const TENANT: Shape = Shape::Named("Tenant");
    vec![
        new("GET", "/tenants", "listTenants", "Lists tenants.").answers_json(
            200,
            "The tenants.",
            Shape::Named("ListTenantsResponse"),
        ),
        new("POST", "/tenants", "createTenant", "Makes a tenant.")
            .audited("tenant.create")
            .takes(Shape::Named("CreateTenantRequest"))
            .answers_json(201, "It is made.", TENANT)
            .errors(&[409]),
        new(
            "GET",
            "/tenants/{tenantName}",
            "getTenant",
            "Shows a tenant.",
        )
        .answers_json(200, "The tenant.", TENANT)
        .errors(&[404]),
        new(
            "DELETE",
            "/tenants/{tenantName}",
            "deleteTenant",
            "Removes a tenant that has nothing any more, with its keys.",
        )
        .audited("tenant.delete")
        .answers(204, "It is gone.")
        .errors(&[404, 409]),
    ]
}
