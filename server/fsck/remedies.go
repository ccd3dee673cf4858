package fsck

// handler is what Plan does about a kind of finding.
type handler struct {
	text string
	do   func(*planner, Finding)
}

const (
	byHand   = "nothing: it has to be looked at"
	itself   = "nothing: it goes by itself"
	revert   = "with --revert-lost the file falls back to its last persisted version"
	unnamed  = "the name goes, its directory is listed again"
	counted  = "counted anew"
	attached = "dirty: gets its name back, or lost+found-INO in the bucket's top; else it goes, and its directory is listed again"
)

var handlers map[Code]handler

func init() { // the handlers ask for remedies themselves
	dir, file := (*planner).directory, (*planner).file
	handlers = map[Code]handler{
		entryDangling: {unnamed, dir}, entryOfDead: {unnamed, dir}, entryUnlinked: {"the name goes, unless it is the only one: then the inode takes it", (*planner).unlinked},
		entryNoDir: {"the names go", (*planner).noDirectory}, entryType: {"the name takes the type of the inode", dir},
		linkDangling: {attached, file}, inodeNameless: {attached, file}, linkCount: {counted, (*planner).counted}, childCount: {counted, dir},
		cookieWrong: {"positions are given anew", dir}, debtOrphaned: {"the debt goes", dir}, claimOrphaned: {"the claim ends", dir},
		owingUnlisted: {"listed", file}, owingStale: {"not listed any more", (*planner).stale}, chunkDirty: {"the file is persisted again", (*planner).dirtied},
		cleanUnstored: {"the file is persisted again", (*planner).dirtied},
		pinOrphaned:   {"the pin goes", (*planner).unpin}, placeLeft: {"the room is given back", (*planner).free},
		chunkLeft: {"the row goes", (*planner).orphanChunk}, chunkOrphaned: {"it goes; dirty bytes only with --revert-lost", (*planner).orphanChunk},
		extentUnplaced: {revert, (*planner).lost}, extentRotten: {revert, (*planner).lost}, extentTwice: {revert, (*planner).lost},
		extentOverlap: {revert, (*planner).lost}, extentRange: {revert, (*planner).lost},
		chunkNewer:   {revert, (*planner).lost},
		lockOrphaned: {"unlocked", (*planner).unlock}, lockDangling: {"unlocked", (*planner).unlock},
		stagedOrphaned: {"the room is given back", (*planner).expire},
		promiseLost:    {"aborted; with bytes only with --revert-lost", (*planner).abort},
		placeTwice:     {byHand, nil},
		fileNameless:   {"nothing: the next start gives the room back", nil},
		tombstoneLeft:  {itself, nil}, claimLeft: {itself, nil}, intentLeft: {itself, nil}, owingLeft: {itself, nil}, promiseLeft: {itself, nil},
		decisionLeft: {itself, nil},
	}
}

func remedy(c Code) string {
	if h, ok := handlers[c]; ok {
		return h.text
	}
	return byHand
}
