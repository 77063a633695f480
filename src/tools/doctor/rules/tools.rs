//! The definitions of tools.

use crate::doctor::rule::rules;

rules! {
    INPUT_SCHEMA: Error Tools "input-schema"
        good "input schemas are valid JSON Schema of an object"
        bad "input schemas are not valid JSON Schema of an object"
        why "Clients and model APIs refuse such a tool, and often the whole list with it."
        fix "Correct the schema; a tool without parameters has {\"type\": \"object\", \
             \"additionalProperties\": false}."
        section "2026-07-28/basic#json-schema-usage";
    OUTPUT_SCHEMA: Error Tools "output-schema"
        good "output schemas are valid JSON Schema"
        bad "output schemas are not valid JSON Schema"
        why "Clients check results against them, and drop the tool or the list if they cannot."
        fix "Correct the schema, or leave it out."
        section "2026-07-28/server/tools#output-schema";
    REFERENCES: Warning Tools "remote-references"
        good "schemas refer to nothing outside"
        bad "schemas refer to something outside, or to nothing"
        why "Nobody may fetch it automatically; model APIs refuse references that they cannot resolve."
        fix "Put what is referred to under $defs."
        section "2026-07-28/basic#ref-resolution";
    SCHEMA_SIZE: Warning Tools "schema-size"
        good "schemas are small and flat enough for model APIs"
        bad "schemas are too deep or too large"
        why "Models fill in deep structures badly, and some model APIs refuse them."
        fix "Flatten the parameters, or split the tool."
        section "2026-07-28/basic#composition-keyword-resource-use";
    PARAM_HEADERS: Error Tools "x-mcp-header"
        good "x-mcp-header stands only where it may"
        bad "x-mcp-header stands where it may not"
        why "Clients must leave such a tool out of the list."
        fix "Use it for string, integer and boolean properties that `properties` alone leads to, each \
             with its own name."
        section "2026-07-28/server/tools#x-mcp-header";
    NAME: Warning Tools "name"
        good "names have 1 to 128 letters, digits, dots, _ and -"
        bad "names have other than 1 to 128 letters, digits, dots, _ and -"
        why "Clients may refuse them or change them on the way to the model."
        fix "Rename: letters and digits of ASCII, _, - and . only."
        section "2026-07-28/server/tools#tool-names";
    MODEL_NAME: Warning Tools "model-name"
        good "the common model APIs accept all names"
        bad "common model APIs refuse some names"
        why "The API refuses the whole request, other tools included, unless the client renames the \
             tool. Hosts add prefixes, too, so that long names get longer."
        fix "Use letters, digits, _ and -, begin with a letter, and stay below 64 characters with room \
             for a prefix."
        section "2026-07-28/server/tools#tool-names";
    DESCRIPTION: Warning Tools "description"
        good "every tool says what it does"
        bad "some tools do not say what they do"
        why "Models choose tools by their description alone."
        fix "Say in one or two sentences what it does, when to use it and what it returns."
        section "2026-07-28/server/tools#tool";
    DESCRIPTION_LONG: Warning Tools "long-description"
        good "descriptions are short enough"
        bad "some descriptions are very long"
        why "They are paid for with every request, and some clients and model APIs cut or refuse them."
        fix "Keep to what the choice of the tool needs; put manuals into a resource or a prompt."
        section "2026-07-28/server/tools#tool";
    HIDDEN: Error Tools "hidden-characters"
        good "no hidden characters in names and descriptions"
        bad "hidden characters in names or descriptions"
        why "People who review a tool do not see them, models read them: that is how instructions are \
             smuggled in."
        fix "Remove control characters, zero-width characters, direction marks and Unicode tags."
        section "2026-07-28/server/tools#security-considerations";
    PARAMETERS: Advice Tools "parameters"
        good "parameters are described"
        bad "some parameters are not described"
        why "Models guess what to fill in from the name alone."
        fix "Give each parameter a description, with an example where the form matters."
        section "2026-07-28/server/tools#tool";
    ANNOTATIONS: Advice Tools "annotations"
        good "tools say whether they only read or may destroy"
        bad "some tools do not say whether they only read or may destroy"
        why "Clients ask people before calls that may destroy, which every tool may that does not say \
             otherwise."
        fix "Set readOnlyHint, and destructiveHint for those that write."
        section "2026-07-28/schema#toolannotations";
    CALL: Error Tools "call"
        good "the call succeeded, and its result is as declared"
        bad "the call did not go well"
        why "This is what the server is for."
        fix "Look at what it answered."
        section "2026-07-28/server/tools#calling-tools";
    CALL_SCHEMA: Error Tools "call-schema"
        good "the structured result fits the output schema"
        bad "the structured result does not fit the output schema"
        why "Clients check it, and drop the result."
        fix "Return what the output schema says, or correct the schema."
        section "2026-07-28/server/tools#output-schema";
    SLOW: Warning Speed "slow"
        good "answers fast"
        bad "answers slowly"
        why "Clients wait for several such answers before a person can type anything."
        fix "Find out what takes the time; these requests do nothing that needs it."
        section "";
}
