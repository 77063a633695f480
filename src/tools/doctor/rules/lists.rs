//! The lists of tools, prompts, resources and templates.

use crate::doctor::rule::rules;

rules! {
    SERVED: Error Lists "capabilities"
        good "serves what its capabilities declare"
        bad "declares capabilities that it does not serve"
        why "Clients ask for these lists when they connect; many give up if one fails."
        fix "Serve the list, an empty one if need be, or do not declare the capability."
        section "2026-07-28/server/tools#capabilities";
    UNDECLARED: Warning Lists "undeclared"
        good "declares what it serves"
        bad "serves lists whose capability it does not declare"
        why "Clients do not ask for what is not declared: what is on these lists is never seen."
        fix "Declare the capability."
        section "2026-07-28/server/tools#capabilities";
    LIST_FORM: Error Lists "list-form"
        good "lists have the form that they must have"
        bad "lists do not have the form that they must have"
        why "Most clients drop a whole list if one entry of it is wrong."
        fix "Send an array of objects under the list's name, each with its name, and a nextCursor that \
             is a string."
        section "2026-07-28/server/tools#listing-tools";
    ENDLESS: Error Lists "endless-list"
        good "lists come to an end"
        bad "a list does not come to an end"
        why "Clients follow nextCursor until there is none, or until they give up."
        fix "Leave nextCursor out on the last page; never give a cursor that was given before."
        section "2026-07-28/server/utilities/pagination#response-format";
    PAGES: Advice Lists "many-pages"
        good "lists have few pages"
        bad "a list has many pages"
        why "Clients read one page after the other before they begin, and some read the first alone."
        fix "Send larger pages; a list of a few hundred entries fits one."
        section "2026-07-28/server/utilities/pagination#pagination-model";
    DUPLICATES: Error Lists "duplicates"
        good "names and URIs are unique"
        bad "names or URIs stand more than once"
        why "Only one of them can be called, and model APIs refuse requests with two tools of one name."
        fix "Give each its own name."
        section "2026-07-28/server/tools#tool-names";
    ORDER: Warning Lists "order"
        good "the list of tools is the same each time, in the same order"
        bad "the list of tools changes its order"
        why "Model APIs keep the beginning of a prompt, tools included, only while it is the same: every \
             change costs time and money."
        fix "Sort the list, or keep the order in which tools were registered; keep the order of members, \
             too."
        section "2026-07-28/server/tools#capabilities";
    VARIES: Warning Lists "varying-list"
        good "the list of tools does not depend on the session"
        bad "the list of tools differs between requests or sessions of one client"
        why "It cannot be cached, and calls fail where a tool is missing."
        fix "Let the list depend on who asks, never on the session or on what was called before; where it \
             must, tell this session with notifications/tools/list_changed."
        section "2026-07-28/server/tools#capabilities";
    DEFINITIONS: Warning Lists "varying-definitions"
        good "a tool is defined the same each time"
        bad "tools are defined otherwise in another reading, session or process"
        why "Gateways and hosts that pin what was approved take it for a change and withhold the tool; no \
             approval lasts."
        fix "Write defaults, sets and examples the same each time, not at random nor by the clock."
        section "2026-07-28/server/tools#capabilities";
    ERAS: Warning Lists "eras-differ"
        good "clients of all revisions see the same tools"
        bad "clients of older revisions see other tools"
        why "What works with one client is missing in the next, and nobody sees why."
        fix "List the same tools in both eras, unless one needs what the other does not have."
        section "2026-07-28/server/tools#listing-tools";
    CACHE_HINTS: Error Lists "cache-hints"
        good "lists say how long and for whom they may be kept"
        bad "lists do not say how long and for whom they may be kept"
        why "Without ttlMs and cacheScope clients and gateways ask again each time, or keep what they \
             should not."
        fix "Send ttlMs (an integer of 0 or more) and cacheScope (\"public\" or \"private\") with every \
             list."
        section "2026-07-28/server/utilities/caching#cacheable-model";
    CACHE_NEVER: Advice Lists "cache-never"
        good "lists may be kept for a while"
        bad "lists may not be kept at all"
        why "With ttlMs 0 every client asks for the whole list each time it needs it."
        fix "Send the time for which an old list does no harm, for example 60000."
        section "2026-07-28/server/utilities/caching#time-to-live-ttl-field";
    CACHE_SCOPES: Error Lists "cache-scopes"
        good "all pages of a list have the same cacheScope"
        bad "pages of one list differ in cacheScope"
        why "A cache would share a part of what is private."
        fix "Send the narrower scope on every page."
        section "2026-07-28/server/utilities/caching#interaction-with-pagination";
    LIST_SIZE: Warning Lists "list-size"
        good "the list of tools leaves room in a model's context"
        bad "the list of tools takes much of a model's context"
        why "Clients give the whole list to the model with every request: it costs money each time, and \
             models choose worse among many tools."
        fix "Shorten descriptions and schemas, split the server, or offer fewer tools to each client."
        section "";
}
