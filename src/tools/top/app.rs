//! What is looked at: keys and answers in, what to draw and to ask for out. No clock, no terminal.

use status::{FailedCalls, History, Status, ToolStatus, ToolsPage, ToolsQuery, ToolsSort};

use super::feed::{News, WantedTools};
use super::key::{Key, KeyInput};
use super::tab::{ListView, Tab, TabView};
use super::table::sort;
use super::view::Layout;
use super::{calls, listing};
use status::problem::Problem;

/// Characters of a filter.
const FILTER_CHARS_MAX: usize = 100;
/// Tools that are asked for at once: as many as a gateway gives.
const PAGE: usize = 200;
/// Rows that one can go to.
const ROWS_MAX: usize = 1_000_000_000;
/// Where pages of tools begin: at a multiple of this.
const PAGE_STEP: usize = 50;

/// What to do beside drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffect {
    None,
    Quit,
    /// Draw all of it again.
    Redraw,
    /// Stop until the shell continues us.
    Suspend,
}

/// One thing that is shown in full.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Detail {
    Upstream(String),
    Endpoint(String),
    Tool(Box<ToolStatus>),
    Limit(String),
    Problem(Box<Problem>),
    FailedCalls(Box<FailedCalls>),
}

/// Everything that is looked at.
#[derive(Debug)]
pub(super) struct App {
    pub(super) place: String,
    pub(super) status: Status,
    pub(super) problems: Vec<Problem>,
    pub(super) history: History,
    /// The tools that were asked for, and why there are none.
    pub(super) tools: Option<ToolsPage>,
    pub(super) tools_fault: Option<String>,
    /// Tools of the upstream that is shown in full.
    pub(super) upstream_tools: Option<(String, ToolsPage)>,
    /// Since when the gateway does not answer, and why.
    pub(super) gone: Option<(u64, String)>,
    pub(super) now_s: u64,
    pub(super) tab: Tab,
    looks: [TabView; Tab::COUNT],
    pub(super) subject: Option<Detail>,
    /// The first line that is shown of what is shown in full.
    pub(super) scroll: usize,
    /// Tools of this upstream only.
    pub(super) only: Option<String>,
    pub(super) is_helping: bool,
    pub(super) is_editing: bool,
    pub(super) is_paused: bool,
    size: (u16, u16),
    /// The table of now; made anew whenever something happens.
    listing: ListView,
    /// The question that `tools` answers.
    answered: Option<ToolsQuery>,
}

impl App {
    /// Nothing is known yet of the gateway at `place`.
    pub(super) fn new(place: &str, now_s: u64) -> Self {
        let mut looks: [TabView; Tab::COUNT] = Default::default();
        for tab in [Tab::Upstreams, Tab::Endpoints] {
            looks[tab.at()].by = Some(listing::STATE);
        }
        looks[Tab::Tools.at()].by = Some(listing::tools_column(ToolsSort::Calls));
        Self {
            place: place.to_owned(),
            status: Status::default(),
            problems: Vec::new(),
            history: History::default(),
            tools: None,
            tools_fault: None,
            upstream_tools: None,
            gone: None,
            now_s,
            tab: Tab::Upstreams,
            looks,
            subject: None,
            scroll: 0,
            only: None,
            is_helping: false,
            is_editing: false,
            is_paused: false,
            size: (80, 24),
            listing: ListView { columns: Tab::Upstreams.columns(), rows: Vec::new(), first: 0, total: 0 },
            answered: None,
        }
    }

    /// How the table of now is looked at.
    pub(super) fn look(&self) -> &TabView {
        &self.looks[self.tab.at()]
    }

    fn look_mut(&mut self) -> &mut TabView {
        &mut self.looks[self.tab.at()]
    }

    /// What is where on the terminal.
    pub(super) fn layout(&self) -> Layout {
        Layout::of(self.size.0, self.size.1, self.has_table())
    }

    /// Whether a table is shown, and not a text.
    pub(super) fn has_table(&self) -> bool {
        self.subject.is_none() && !self.is_helping && self.tab != Tab::Gateway
    }

    pub(super) fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.settle();
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now_s: u64) {
        self.now_s = now_s;
    }

    /// Something was found out.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Gone(why) => {
                let since_s = self.gone.take().map_or(self.now_s, |(since_s, _)| since_s);
                self.gone = Some((since_s, why));
            }
            News::State(..) if self.is_paused => self.gone = None,
            News::State(status, history) => {
                self.gone = None;
                self.problems = status.told_problems(self.now_s);
                self.status = *status;
                if let Some(history) = history {
                    self.history = *history;
                }
            }
            News::Tools(asked, page) => self.hear_tools(asked, page),
        }
        self.settle();
    }

    fn hear_tools(&mut self, asked: WantedTools, page: Result<ToolsPage, String>) {
        match asked {
            WantedTools::OfUpstream(name) => {
                let is_shown = self.upstream_tools.as_ref().is_some_and(|(shown, _)| *shown == name);
                if !(self.is_paused && is_shown) {
                    self.upstream_tools = page.ok().map(|page| (name, page));
                }
            }
            WantedTools::Page(query) if self.is_paused && self.answered.as_ref() == Some(&query) => {}
            WantedTools::Page(query) => match page {
                Ok(page) => {
                    self.follow_tool(&page);
                    self.tools = Some(page);
                    self.tools_fault = None;
                    self.answered = Some(query);
                }
                Err(why) => self.tools_fault = Some(why),
            },
        }
    }

    /// The tools that should be known now.
    pub(super) fn wanted(&self) -> Option<WantedTools> {
        if let Some(Detail::Upstream(name)) = &self.subject {
            return Some(WantedTools::OfUpstream(name.clone()));
        }
        let look = &self.looks[Tab::Tools.at()];
        let sort = ToolsSort::ALL.into_iter().find(|sort| Some(listing::tools_column(*sort)) == look.by);
        (self.tab == Tab::Tools).then(|| {
            WantedTools::Page(ToolsQuery {
                upstream: self.only.clone(),
                text: look.filter.clone(),
                sort: sort.unwrap_or_default(),
                offset: (look.top / PAGE_STEP).saturating_sub(1) * PAGE_STEP,
                count: PAGE,
            })
        })
    }

    /// The table of now.
    pub(super) fn listing(&self) -> &ListView {
        &self.listing
    }

    fn list(&self) -> ListView {
        let look = self.look();
        let filter = look.filter.as_str();
        let columns = self.tab.columns();
        if self.tab == Tab::Tools {
            let page = self.tools.as_ref();
            let total =
                page.map_or(0, |page| usize::try_from(page.matched()).unwrap_or(ROWS_MAX).min(ROWS_MAX));
            let first = page.and_then(|page| page.offset.try_into().ok()).unwrap_or_default();
            let rows = page.map(|page| listing::tools(&page.tools)).unwrap_or_default();
            return ListView { columns, rows, first, total };
        }
        let mut rows = match self.tab {
            Tab::Upstreams => listing::upstreams(&self.status, &self.history, filter),
            Tab::Endpoints => listing::endpoints(&self.status, &self.history, filter),
            Tab::Limits => listing::limits(&self.status, filter),
            Tab::Problems => listing::problems(&self.problems, self.now_s, filter),
            Tab::Errors => calls::errors(&self.status, self.now_s, filter),
            Tab::Callers => calls::callers(&self.status, filter),
            Tab::Tools | Tab::Gateway => Vec::new(),
        };
        sort(&mut rows, look.by, look.is_reversed);
        let total = rows.len();
        ListView { columns, rows, first: 0, total }
    }

    /// A person does something.
    pub(super) fn input(&mut self, input: KeyInput) -> SideEffect {
        let effect = match input {
            KeyInput::Resize(columns, rows) => {
                self.size = (columns, rows);
                SideEffect::None
            }
            KeyInput::Key(Key::Control('c')) => SideEffect::Quit,
            KeyInput::Key(Key::Control('z')) => SideEffect::Suspend,
            KeyInput::Key(Key::Control('l')) => SideEffect::Redraw,
            KeyInput::Key(key) if self.is_editing => self.edit(key),
            KeyInput::Key(Key::Char('q')) => SideEffect::Quit,
            KeyInput::Key(_) if self.is_helping => {
                self.is_helping = false;
                SideEffect::None
            }
            KeyInput::Key(key) => self.press(key),
        };
        self.settle();
        effect
    }

    fn press(&mut self, key: Key) -> SideEffect {
        match key {
            Key::Char('?') => self.is_helping = true,
            Key::Char('p') => self.is_paused = !self.is_paused,
            Key::Char(digit @ '1'..='8') => {
                self.go_to(Tab::ALL[usize::from(digit as u8 - b'1')]);
            }
            Key::Tab | Key::Right | Key::Char('l') if self.subject.is_none() => self.turn(1),
            Key::BackTab | Key::Left | Key::Char('h') if self.subject.is_none() => {
                self.turn(Tab::ALL.len() - 1);
            }
            Key::Esc | Key::Backspace | Key::Left | Key::Char('h') => self.back(),
            Key::Down | Key::Char('j') => self.step(1),
            Key::Up | Key::Char('k') => self.step(-1),
            Key::PageDown | Key::Char(' ') | Key::Control('f') => self.step(self.page()),
            Key::PageUp | Key::Control('b') => self.step(-self.page()),
            Key::Home | Key::Char('g') => self.step(isize::MIN),
            Key::End | Key::Char('G') => self.step(isize::MAX),
            Key::Char('t') => self.show_tools(),
            Key::Enter if self.has_table() => self.open(),
            Key::Char('/') if self.has_table() => self.is_editing = true,
            Key::Char('s') if self.has_table() => self.sort_by(true),
            Key::Char('S') if self.has_table() => self.sort_by(false),
            Key::Char('r') if self.has_table() && self.tab != Tab::Tools => {
                let look = self.look_mut();
                look.is_reversed = !look.is_reversed;
            }
            _ => {}
        }
        SideEffect::None
    }

    fn edit(&mut self, key: Key) -> SideEffect {
        let filter = &mut self.look_mut().filter;
        match key {
            Key::Char(c) if filter.chars().count() < FILTER_CHARS_MAX => filter.push(c),
            Key::Backspace => {
                filter.pop();
            }
            Key::Control('u' | 'w') => filter.clear(),
            Key::Esc => {
                filter.clear();
                self.is_editing = false;
            }
            Key::Enter | Key::Up | Key::Down | Key::Tab => self.is_editing = false,
            _ => return SideEffect::None,
        }
        self.begin_again();
        SideEffect::None
    }

    fn begin_again(&mut self) {
        let look = self.look_mut();
        (look.cursor, look.top, look.chosen) = (0, 0, None);
    }

    fn go_to(&mut self, tab: Tab) {
        self.tab = tab;
        self.subject = None;
        self.scroll = 0;
    }

    fn turn(&mut self, by: usize) {
        self.go_to(Tab::ALL[(self.tab.at() + by) % Tab::ALL.len()]);
    }

    /// Takes away what was put on last.
    fn back(&mut self) {
        if self.subject.take().is_some() {
            self.scroll = 0;
        } else if !self.look().filter.is_empty() {
            self.look_mut().filter.clear();
            self.begin_again();
        } else if self.tab == Tab::Tools && self.only.take().is_some() {
            self.begin_again();
        }
    }

    fn page(&self) -> isize {
        isize::try_from(self.layout().body).unwrap_or(1).max(1)
    }

    fn step(&mut self, by: isize) {
        let moved = |from: usize| match by {
            isize::MIN => 0,
            by => from.saturating_add_signed(by),
        };
        if !self.has_table() {
            self.scroll = moved(self.scroll);
            return;
        }
        let cursor = moved(self.look().cursor).min(self.listing.total.saturating_sub(1));
        let chosen = self.listing.row(cursor).filter(|_| cursor > 0).map(|row| row.id.clone());
        let look = self.look_mut();
        (look.cursor, look.chosen) = (cursor, chosen);
    }

    fn sort_by(&mut self, is_next: bool) {
        let columns = self.tab.columns();
        let mut sortable: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].is_sortable).collect();
        if !is_next {
            sortable.reverse();
        }
        let look = self.look_mut();
        let at = look.by.and_then(|by| sortable.iter().position(|at| *at == by));
        look.by = sortable.get(at.map_or(0, |at| (at + 1) % sortable.len().max(1))).copied();
        look.is_reversed = false;
        self.begin_again();
    }

    fn open(&mut self) {
        let Some(id) = self.listing.row(self.look().cursor).map(|row| row.id.clone()) else { return };
        self.subject = match self.tab {
            Tab::Upstreams => Some(Detail::Upstream(id)),
            Tab::Endpoints => Some(Detail::Endpoint(id)),
            Tab::Tools => {
                let tools = self.tools.iter().flat_map(|page| &page.tools);
                let tool = tools.into_iter().find(|tool| listing::tool_id(tool) == id);
                tool.map(|tool| Detail::Tool(Box::new(tool.clone())))
            }
            Tab::Limits => Some(match id.strip_prefix("upstream ") {
                Some(name) => Detail::Upstream(name.to_owned()),
                None => Detail::Limit(id),
            }),
            Tab::Problems => id.parse().ok().and_then(|at: usize| self.problems.get(at)).map(subject_of),
            Tab::Errors => {
                let error = self.status.recent_errors.iter().find(|error| calls::error_id(error) == id);
                error.map(|error| Detail::FailedCalls(Box::new(error.clone())))
            }
            Tab::Callers | Tab::Gateway => None,
        };
        self.scroll = 0;
    }

    fn show_tools(&mut self) {
        let chosen = match (&self.subject, self.tab) {
            (Some(Detail::Upstream(name)), _) => Some(name.clone()),
            (None, Tab::Upstreams) => self.listing.row(self.look().cursor).map(|row| row.id.clone()),
            _ => None,
        };
        if let Some(name) = chosen {
            self.go_to(Tab::Tools);
            self.only = Some(name);
            self.look_mut().filter.clear();
            self.begin_again();
        }
    }

    /// A tool that is shown in full stays up to date.
    fn follow_tool(&mut self, page: &ToolsPage) {
        if let Some(Detail::Tool(shown)) = &mut self.subject
            && let Some(tool) =
                page.tools.iter().find(|tool| listing::tool_id(tool) == listing::tool_id(shown))
        {
            **shown = tool.clone();
        }
    }

    /// The chosen row is one that there is, and can be seen.
    fn settle(&mut self) {
        if !self.has_table() {
            return;
        }
        let listing = self.list();
        let body = usize::from(self.layout().body).max(1);
        let is_local = self.tab != Tab::Tools;
        let look = self.look_mut();
        if let Some(id) = look.chosen.as_ref().filter(|_| is_local)
            && let Some(at) = listing.rows.iter().position(|row| row.id == *id)
        {
            look.cursor = at;
        }
        look.cursor = look.cursor.min(listing.total.saturating_sub(1));
        look.top = look.top.min(look.cursor).max((look.cursor + 1).saturating_sub(body));
        look.top = look.top.min(listing.total.saturating_sub(body));
        self.listing = listing;
    }
}

/// What a problem is about, where that can be shown.
fn subject_of(problem: &Problem) -> Detail {
    let subject = problem.subject.as_str();
    match (subject.strip_prefix("upstream "), subject.strip_prefix("endpoint ")) {
        (Some(name), _) => Detail::Upstream(name.to_owned()),
        (_, Some(path)) => Detail::Endpoint(path.to_owned()),
        _ => Detail::Problem(Box::new(problem.clone())),
    }
}
