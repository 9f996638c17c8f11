//! What is prepared before it is asked for: pools and templates.

use super::super::operation::{Operation, POSITIVE, Shape};
use super::PAGE_SIZE;

const POOL: Shape = Shape::Named("PoolResponse");
const TEMPLATE: Shape = Shape::Named("FsbTemplate");

pub(super) fn pools() -> Vec<Operation> {
    let new = Operation::new;
    let operations = [
        new("GET", "/pools", "listPools", "Lists pools.").answers_json(
            200,
            "The pools.",
            Shape::Named("ListPoolsResponse"),
        ),
        new("POST", "/pools", "createPool", "Makes a pool.")
            .audited("pool.change")
            .takes(Shape::Named("CreatePoolRequest"))
            .answers_json(201, "It is made.", POOL)
            .errors(&[409]),
        new("GET", "/pools/{poolName}", "getPool", "Shows a pool.")
            .answers_json(200, "The pool.", POOL)
            .errors(&[404]),
        new(
            "PUT",
            "/pools/{poolName}",
            "updatePool",
            "Changes how many sandboxes a pool holds.",
        )
        .audited("pool.change")
        .takes(Shape::Named("UpdatePoolRequest"))
        .answers_json(200, "The pool.", POOL)
        .errors(&[404]),
        new(
            "DELETE",
            "/pools/{poolName}",
            "deletePool",
            "Removes a pool.",
        )
        .audited("pool.change")
        .answers(204, "It is gone.")
        .errors(&[404]),
    ];
    operations.map(|operation| operation.errors(&[501])).into()
}

pub(super) fn templates() -> Vec<Operation> {
    let new = Operation::new;
    let operations = [
        new(
            "GET",
            "/templates",
            "listTemplates",
            "Lists templates, newest first.",
        )
        .query("page", POSITIVE, "Which page, from 1.")
        .query("pageSize", PAGE_SIZE, "Templates per page.")
        .query(
            "metadata",
            Shape::Text,
            "Only with these labels: an encoded query of its own.",
        )
        .answers_json(200, "The page.", Shape::Named("ListFsbTemplatesResponse")),
        new("POST", "/templates", "createTemplate", "Prepares an image.")
            .audited("template.change")
            .takes(Shape::Named("CreateFsbTemplateRequest"))
            .answers_json(201, "It is being prepared.", TEMPLATE)
            .errors(&[409]),
        new(
            "GET",
            "/templates/{templateId}",
            "getTemplate",
            "Shows a template.",
        )
        .answers_json(200, "The template.", TEMPLATE)
        .errors(&[404]),
        new(
            "DELETE",
            "/templates/{templateId}",
            "deleteTemplate",
            "Removes a template.",
        )
        .audited("template.change")
        .answers(204, "It is gone.")
        .errors(&[404]),
    ];
    operations.map(|operation| operation.errors(&[501])).into()
}
