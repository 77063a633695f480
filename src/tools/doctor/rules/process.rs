//! How a server behaves that is started as a program.

use crate::doctor::rule::rules;

rules! {
    STDOUT: Error Process "stdout"
        good "standard output carries messages only"
        bad "standard output carries something else than messages"
        why "Clients read every line as a message: some skip others, some give the server up."
        fix "Write logs to standard error. Look for print, console.log and banners of package managers."
        section "2026-07-28/basic/transports/stdio#receiving-messages";
    EXIT: Warning Process "exit"
        good "exits when its standard input ends"
        bad "goes on when its standard input ends"
        why "That is how clients end a server; one that goes on stays behind when they are gone."
        fix "Exit when reading standard input returns its end."
        section "2026-07-28/basic/transports/stdio#shutdown";
    CRASH: Error Process "crash"
        good "stays alive"
        bad "exits while it is in use"
        why "Clients lose every request that is under way, and seldom start the server again."
        fix "Look at what it wrote to standard error."
        section "2026-07-28/basic/transports/stdio#unexpected-termination";
    STDERR: Advice Process "stderr"
        good "standard error is quiet"
        bad "standard error is noisy"
        why "Clients keep it in their logs, where what matters drowns."
        fix "Log less unless asked to."
        section "2026-07-28/basic/transports/stdio";
    REQUESTS: Error Process "server-requests"
        good "sends no requests of its own, as it must not since 2026"
        bad "sends requests of its own, which it must not since 2026"
        why "Clients of these revisions do not answer them."
        fix "Ask by an input_required result of the request that needs the answer."
        section "2026-07-28/basic/transports/stdio#receiving-messages";
}
