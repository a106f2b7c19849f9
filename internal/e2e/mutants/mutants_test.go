package mutants

import (
	"cmp"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// mutant is a way to break one file: old, which must occur exactly once, becomes new.
type mutant struct {
	name, file, old, new string
	kind                 string // the kind of schedules that can notice; any if empty
	also                 string // the additional work of clients: a flag of the schedules
	model                string // the package whose model or test notices, if not the schedules
	test                 string // its name; TestModel if empty
	more                 bool   // it runs with -all only
}

var (
	allFlag    = flag.Bool("all", false, "run the mutants that are left out otherwise, too")
	sampleFlag = flag.Int("sample", 0, "run only so many mutants, drawn by -draw (0: no limit)")
	drawFlag   = flag.Uint64("draw", 0, "the seed by which -sample draws")
)

func mutants() []mutant {
	return slices.Concat(generalMutants(), clusterMutants(), cellMutants())
}

func generalMutants() []mutant {
	return []mutant{
		{
			name: "the store does not check sequences", file: "internal/embedded/store.go",
			old: "p.carryOut(r, r.Seq > stored.n, now)\n", new: "p.carryOut(r, r.Seq > 0, now)\n",
			kind: "outages",
		},
		{
			name: "a key that leaves memory is taken for new",
			file: "syncer/internal/keys/keyspace.go",
			old:  "\ts.Stored.Add(ListHash(e.Name()))\n", new: "", model: "./syncer",
		},
		{
			name: "a key that left memory meanwhile is taken for new", file: "syncer/ledger.go",
			old: " && !b.keys.MayHaveDropped(hash, a.Drops)\n", new: "\n",
			model: "./syncer", test: "TestScarceModel",
		},
		{
			name: "what others have begun is not heard of", file: "syncer/listing.go",
			old: "g.listing.valid && g.listing.stamp == g.store.Stamp() && ",
			new: "g.listing.valid && ", kind: "chaos",
		},
		{
			name: "the store does not list all its keys", file: "internal/embedded/keylist.go",
			old:  "\tp.list.add(p.name)\n",
			new:  "\tif len(p.list.hashes)%4 != 3 {\n\t\tp.list.add(p.name)\n\t}\n",
			kind: "crashes",
		},
		{
			name: "a key that was listed long ago is not listed again", file: "syncer/flush.go",
			old: "at, listGroup(l))", new: "at, 8*listGroup(l))",
			model: "./syncer", test: "TestModel$|TestBusyKeyIs",
		},
		{
			name: "a limit leaves out what later checks count of its key", file: "syncer/call.go",
			old: ", o.extra+check.N\n", new: ", o.extra\n", kind: "graceful",
		},
		{
			name: "min has what may be later than a window of the past", file: "leaparray/view.go",
			old: "\tinside := live && ", new: "\tinside := ",
			model: "./leaparray", test: "TestBoundsAgainstExactLog",
		},
		{
			name:  "events ahead of the present are not marked",
			file:  "syncer/internal/keys/counts.go",
			old:   "ok && mark.Start >= beyond.Start {\n",
			new:   "ok && mark.Start >= 0 || beyond.Start > 0 {\n",
			model: "./syncer",
		},
		{
			name: "the store merges by max", file: "internal/embedded/cells.go",
			old: "\t(*c)[at].N += n\n", new: "\t(*c)[at].N = max((*c)[at].N, n)\n",
		},
		{
			name: "a new owner merges by max", file: "syncer/ledgerround.go",
			old: "\t\tb.keys.AddPending(e, l, add.Stretch, add.N)\n",
			new: "\t\tif had := l.Total(b.keys.PendingOf(e)); add.N > had {\n" +
				"\t\t\tb.keys.AddPending(e, l, add.Stretch, add.N-had)\n\t\t}\n",
			kind: "everything",
		},
		{
			name: "a round of unknown outcome is sent under a new number", file: "syncer/flush.go",
			old: "\t\treturn f.outbox.Flight // its outcome is unknown",
			new: "\t\tif f.outbox.Flight.Seq != 0 {\n" +
				"\t\t\tf.outbox.Number(f.outbox.Flight)\n\t\t}\n" +
				"\t\treturn f.outbox.Flight // its outcome is unknown",
			kind: "outages",
		},
		{
			name: "a round of unknown outcome is dropped", file: "syncer/settle.go",
			old: "\t\treturn // it stays the partition's flight\n",
			new: "\t\tf.outbox.Flight = nil\n\t\treturn\n", kind: "outages",
		},
		{
			name: "an owner flushes after it has handed over", file: "syncer/ownership.go",
			old: "\tp.handoff.finish(c.opt.Writer)\n",
			new: "\trounds := p.handoff.rounds\n\tp.handoff.finish(c.opt.Writer)\n" +
				"\tfor _, r := range rounds {\n\t\tp.outbox.Number(r)\n" +
				"\t\tr.Writer, r.Acked, r.Epoch = p.outbox.Writer, 0, 0\n" +
				"\t\tp.outbox.Queue = append(p.outbox.Queue, r)\n\t}\n", kind: "everything",
		},
		{
			name: "an owner decides on after it has handed over", file: "syncer/partition.go",
			old:  "\treturn g.ownership != owned && (g.ownership == handingOff || !nonOwner)\n",
			new:  "\treturn g.ownership != owned && !nonOwner && !g.sealed\n",
			kind: "graceful",
		},
		{
			name: "a copy of a message between nodes is carried out again",
			file: "internal/peer/server.go",
			old:  "\t\treturn s.again(request, min(m.Budget, underWay))\n",
			new:  "\t\treturn s.inTime(ctx, m)\n", kind: "splits",
		},
		{
			name: "one message that takes long opens the circuit", file: "internal/peer/link.go",
			old: "\tmaxMissed = 3\n", new: "\tmaxMissed = 0\n", kind: "graceful",
		},
		{
			name: "an unknown outcome between nodes is taken for none",
			file: "internal/peer/exchange.go",
			old:  "\tif sent {\n\t\tkind = twotier.ErrUnknownOutcome\n\t}\n", new: "\t_ = sent\n",
			kind: "splits",
		},
		{
			name: "a store that goes back in time is not noticed",
			file: "internal/embedded/store.go",
			old: "\treturn told.Epoch != p.epoch || p.version < told.Version || " +
				"p.quieted < told.Quieted ||\n" +
				"\t\tp.lacks(told.LastChange)\n",
			new: "\treturn told.Epoch != p.epoch\n", kind: "losses",
		},
		{
			name: "the data of another epoch is taken for the same",
			file: "internal/embedded/store.go",
			old:  "\treturn told.Epoch != p.epoch || p.version < told.Version ||",
			new:  "\treturn p.version < told.Version ||", model: "./syncer", test: "TestLossModel",
		},
		{
			name: "a list is believed though the store has lost something",
			file: "internal/embedded/keylist.go",
			old:  "\tl.Lost = l.Told.Epoch != 0 && p.behind(l.Told)\n",
			new:  "\tl.Lost = false\n", model: "./syncer", test: "TestLossModel",
		},
		{
			name: "no epoch begins with a loss", file: "internal/embedded/restore.go",
			old: "\tif p.epoch <= r.After {\n", new: "\tif p.epoch == 0 {\n", kind: "losses",
		},
		{
			name: "what is restored is added to what there is",
			file: "internal/embedded/restore.go",
			old:  "\t\tadd := missing(k, rec.cells)\n", new: "\t\tadd := missing(k, nil)\n",
			kind: "losses",
		},
		{
			name: "what has to be read again is not handed over", file: "syncer/handoffpage.go",
			old:  "\tif !h.store.MustVerify && idle > hotIdle",
			new:  "\tif k.Cold && !h.store.MustVerify || !h.store.MustVerify && idle > hotIdle",
			kind: "handloss",
		},
		{
			name: "reservations hold nothing", file: "syncer/evaluate.go",
			old: "\t\tn += t.p.reservations.Of(t.ns, t.check.Key)\n", new: "", kind: "graceful",
		},
		{
			name: "a node stands in for any that does not answer",
			file: "internal/routing/fallback.go",
			old:  "\tcase d.to == forward && errors.Is(err, rpc.ErrUnreachable):\n",
			new: "\tcase d.to == forward && (errors.Is(err, rpc.ErrUnreachable) || " +
				"errors.Is(err, twotier.ErrUnavailable)):\n",
			kind: "together",
		},
		{
			name: "who decides last forgets what it decided",
			file: "internal/multiowner/outcomes.go",
			old:  "\t\tif d.number == id.Number {\n",
			new:  "\t\tif d.number == id.Number && d.outcome != CarriedOut {\n",
			kind: "together",
		},
		{
			name: "an acquire of unknown outcome is given up unasked",
			file: "internal/multiowner/finish.go",
			old:  "\tif outcome == NotCarriedOut {\n", new: "\tif outcome != Undecided {\n",
			model: "./internal/multiowner", test: "TestFaultsBetweenTheSteps",
		},
		{
			name: "a settled acquire was not carried out",
			file: "internal/multiowner/outcomes.go",
			old:  "\tcase refused:\n", new: "\tcase refused, id.Number < r.settled:\n",
			model: "./internal/e2e/simtest", test: "TestGroupsAreWholeAfterAStandstill",
		},
		{
			name: "what was counted in doubt stays counted", file: "internal/multiowner/doubt.go",
			old: "\top.Checks[0].N = -op.Checks[0].N\n", new: "\top.Checks[0].N = 0\n",
			model: "./internal/e2e/simtest", test: "TestGroupsAreWholeAfterAStandstill",
		},
		{
			name: "an owner that can be reached is replaced along with another",
			file: "internal/routing/fallback.go",
			old:  "\tfor _, p := range gone {\n",
			new: "\tfor _, p := range append(gone, d.parts...) {\n\t\tif p.To == nil {\n" +
				"\t\t\tcontinue\n\t\t}\n",
			model: "./internal/e2e/simtest", test: "TestALimitHoldsWhoseOwner",
		},
		{
			name: "no other owner is asked to coordinate", file: "internal/routing/fallback.go",
			old:   "\tfor _, to := range d.detours {\n",
			new:   "\tfor _, to := range d.detours[:0] {\n",
			model: "./internal/e2e/simtest", test: "TestALimitHoldsWhoseOwner",
		},
		{
			name: "a change of mode drops what is given", file: "internal/ownership/suspend.go",
			old: "\t\t\ts.paused = true\n\t\t\tcontinue\n", new: "",
			model: "./internal/ownership", test: "TestRandomTables",
		},
		{
			name: "what is lent does not stand in the way", file: "syncer/evaluate.go",
			old: "\t\tn += lent\n", new: "",
			model: "./syncer", test: "TestLoansNeverExceedALimit",
		},
		{
			name: "what was borrowed is repaid before it is read",
			file: "syncer/internal/loans/key.go",
			old:  "l.Seen = max(l.Seen, min(l.reading, l.Ceiling))\n", new: "l.Seen = l.Ceiling\n",
			model: "./syncer", test: "TestLoansNeverExceedALimit",
		},
		{
			name: "the mode changes before all is in the store", file: "internal/modes/step.go",
			old: "\t\terr = s.opt.Flush(ctx)\n", new: "", kind: "modes",
		},
		{
			name: "who changes its mode says that it has nothing",
			file: "internal/ownership/handoff.go",
			old:  "\t\treturn &HoldingsResponse{Later: true}\n",
			new:  "\t\treturn &HoldingsResponse{}\n", kind: "modes",
		},
		{
			name: "who can't see a key takes back nothing, and says it did",
			file: "syncer/evaluate.go",
			old:  "\t\t\tcase t.unread():\n",
			new:  "\t\t\tcase t.ref < 0 && t.unread():\n", kind: "modes",
		},
		{
			name: "the answer that a session remembers is not used", file: "httpapi/session.go",
			old: "\t\treturn s.repeat(ctx, request)\n", new: "\t\treturn execute(ctx)\n",
			kind: "graceful",
		},
		{
			name: "a client asks another node when a connection breaks",
			file: "httpapi/client/lane.go",
			old:  "\t\t} else if failures == 0 && errors.Is(err, errDial) {\n",
			new:  "\t\t} else if failures == 0 {\n", kind: "graceful",
		},
		{
			name: "times to live are not handed over",
			file: "syncer/internal/rounds/round.go",
			old:  "TTL: k.TTL,\n", new: "\n", model: "./syncer", test: "TestHandoverModel",
		},
		{
			name: "resets are not handed over",
			file: "syncer/internal/rounds/round.go",
			old:  "Reset: k.Reset, ", new: "", model: "./syncer", test: "TestHandoverModel",
		},
		{
			name: "what a reset has undone is handed over",
			file: "syncer/internal/rounds/round.go",
			old:  "Forgotten: k.Forgotten, ", new: "", model: "./syncer", test: "TestHandoverModel",
		},
		{
			name: "quiet changes are not handed over", file: "syncer/handoffpage.go",
			old: " Quieted: last.Quieted,\n", new: "\n", model: "./syncer", test: "TestLossModel",
		},
		{
			name: "operations go on while the mode changes", file: "internal/modes/gate.go",
			old: "\tif s.paused.Load() || s.Mode() != in {\n", new: "\tif s.Mode() != in {\n",
			model: "./internal/modes",
		},
		{
			name: "the mode changes while operations are under way", file: "internal/modes/step.go",
			old: "s.inFlight.Load() > 0 || !s.opt.Idle()", new: "!s.opt.Idle()",
			model: "./internal/modes",
		},
		{
			name: "a message is carried out when its time is up", file: "internal/peer/server.go",
			old: "\tleft := m.remaining(s.clock.Now())\n",
			new: "\tleft := max(m.remaining(s.clock.Now()), time.Second)\n", kind: "chaos",
		},
		{
			name: "a header with an address in it has the key of that address",
			file: "httpapi/internal/forwarded/key.go",
			old:  "prefix, value = source.name+\"=\", ", new: "prefix, value = \"\", ",
			model: "./httpapi", test: "TestNoValueIsAnotherSourcesKey",
		},
		{
			name: "a header forges the hash of another one", file: "httpapi/internal/forwarded/key.go",
			old: " || request.IsHashed(value)", new: "",
			model: "./httpapi", test: "TestNoValueIsAnotherSourcesKey",
		},
		{
			name: "values that are not UTF-8 are an error", file: "internal/envoy/codec.go",
			old:   "if err == nil || !isRequest {",
			new:   "if err == nil || !isRequest || err != nil {",
			model: "./internal/envoy", test: "TestValuesAreAnyBytes",
		},
		{
			name: "more hits than a check may have are cut off", file: "internal/envoy/decision.go",
			old: "most = max(most, uint64(it.limit.Max)+1)", new: "most += 0",
			model: "./internal/envoy", test: "TestAnyNumberOfHits",
		},
		{
			name: "a limit that never refuses is sought beside shorter windows",
			file: "internal/lint/rules.go", old: "stricter.Window >= l.Window",
			new: "stricter.Window <= l.Window", model: "./internal/lint",
			test: "TestWhatNeverRefusesCanBeRemoved",
		},
		{
			name: "a window that a level just covers is taken for one of the next level",
			file: "internal/lint/windows.go", old: "Milliseconds() >= window-1 {",
			new: "Milliseconds() > window-1 {", model: "./internal/lint",
			test: "TestCoarseWindowsAreThoseThatTheCounterReadsCoarsely",
		},
		{
			name: "of the rules that a check names only the first judges",
			file: "internal/ask/rules.go",
			old:  "\tfor i, rule := range r.naming {\n",
			new:  "\tfor i, rule := range r.naming[:1] {\n",
			kind: "graceful", also: "-rules",
		},
		{
			name: "a rule bans the key of the first check only", file: "internal/ask/rules.go",
			old:  "\t\tif rule.Bans() && kind == twotier.Acquire {\n",
			new:  "\t\tif rule.Bans() && kind == twotier.Acquire && len(r.checks) == 0 {\n",
			kind: "graceful", also: "-rules",
		},
		{
			name: "what is refused during a ban starts another", file: "syncer/ban.go",
			old: "\t\tif res.Checks[i].Refused || len(t.check.Limits) != 1 ||\n",
			new: "\t\tif len(t.check.Limits) != 1 ||\n", kind: "graceful", also: "-rules",
		},
		{
			name: "the first of several bans counts", file: "syncer/banend.go",
			old: "last > max(end, v.Now) &&", new: "end == 0 && last > v.Now &&",
			model: "./syncer", test: "TestTheLastBanCounts",
		},
		{
			name: "who takes over does not ask for distinct values",
			file: "internal/node/distinct.go", old: "Open(n.owned, n.gatherDistinct)",
			new: "Open(n.owned, nil)", kind: "together", also: "-distinct",
		},
		{
			name: "a flush forgets the distinct values that it was refused",
			file: "internal/distinct/entry.go", old: "\t\ten.failed = x.Err\n",
			new:  "\t\ten.failed, en.flushed = x.Err, max(en.flushed, seq)\n",
			kind: "outages", also: "-distinct",
		},
		{
			name: "distinct values of different ages come together unread",
			file: "internal/distinct/takeover.go", old: "\te.read(list)\n", new: "",
			model: "./internal/distinct",
			test:  "TestModel$|ComesTogether$",
		},
		{
			name: "distinct values are added to what is older than another's term",
			file: "internal/distinct/do.go", old: " || !t.inPlace && t.en.term != term", new: "",
			model: "./internal/distinct",
		},
		{
			name: "a leaving node keeps the distinct values that the store lacks",
			file: "internal/node/drain.go", old: "\tn.handOverDistinct(ctx)\n", new: "",
			model: "./internal/e2e/simtest", test: "TestWhoLeavesWithoutRedisHandsOverItsValues",
		},
		{
			name: "values that a reset made void are kept", file: "internal/distinct/entry.go",
			old: "\tif isVoid(en.mark, en.born, mark) {", new: "\tif false {",
			kind: "graceful", also: "-distinct",
		},
		{
			name:  "a reset voids the values that were added after it",
			file:  "internal/distinct/entry.go",
			old:   "return mark > known && mark >= fmt.Sprintf(\"%013d\", born+1)",
			new:   "return mark > known && born >= 0",
			model: "./internal/distinct", test: "TestAddAfterAReset",
		},
		{
			name: "an owner takes back what it knows of a key that is lent",
			file: "internal/hotkeys/recall.go",
			old:  "\treturn t.opt.Counter.CatchUp(ctx, c)\n", new: "\treturn nil\n",
			model: "./internal/hotkeys", test: "TestTakingBackWhatIsLent",
		},
		{
			name: "an owner trusts what it read in an earlier time as owner",
			file: "internal/distinct/do.go", old: "\treturn en.term == term\n",
			new:   "\treturn true\n",
			model: "./internal/distinct", test: "TestTheOthersFlushWhileTheyAreAsked",
		},
		{
			name: "a flush waits until nobody waits for the store", file: "syncer/turns.go",
			old:   "{ l.scheduleAs(p, time.Now()) }",
			new:   "{ l.scheduleAs(p, time.Time{}) }",
			model: "./syncer", test: "TestCrowdModel",
		},
		{
			name: "a drop does not wait for what may still be written", file: "syncer/reset.go",
			old:   "!p.outbox.Has(t.hash, t.ns, t.check.Key) && ",
			new:   "(!p.outbox.Has(t.hash, t.ns, t.check.Key) || !p.outbox.Sent) && ",
			model: "./syncer", test: "TestHandoverModel",
		},
		{
			name: "the figures of a reservation leave out what it reserves",
			file: "syncer/evaluate.go", old: "\tk.includeCounted(res)\n\tk.setTimes(res)\n",
			new: "\tif k.reservation == nil {\n\t\tk.includeCounted(res)\n\t}\n" +
				"\tk.setTimes(res)\n",
			model: "./syncer",
		},
		{
			name: "the figures of a reservation include what it reserves of other keys",
			file: "syncer/evaluate.go", old: "n := k.targets[i].check.N + k.targets[i].extra\n",
			new: "n := k.targets[i].check.N + k.targets[i].extra\n" +
				"\t\tfor j := 0; j < i && k.reservation != nil; j++ {\n" +
				"\t\t\tn += k.targets[j].check.N\n\t\t}\n",
			model: "./syncer",
		},
		{
			name: "a key that is only refused does not count as used", file: "syncer/evaluate.go",
			old: "\tk.use()\n", new: "\tif k.op.Kind == twotier.Count {\n\t\tk.use()\n\t}\n",
			model: "./syncer",
		},
		{
			name: "a key that is only read does not count as used", file: "syncer/evaluate.go",
			old: "\tk.use()\n", new: "\tif k.op.Kind != twotier.Count {\n\t\tk.use()\n\t}\n",
			model: "./syncer",
		},
		{
			name: "a large partition does not give back what others need",
			file: "syncer/reclaim.go", old: "\tif need <= 0 {\n",
			new: "\tif need < 1<<60 {\n", model: "./syncer",
		},
		{
			name: "resets take no memory without Redis", file: "internal/embedded/restore.go",
			old: "\t\tp.store.bytes.Add(recordCost + int64(len(p.name)))\n", new: "",
			model: "./internal/embedded", test: "TestMemoryIsBounded",
		},
		{
			name: "a late store of distinct values is taken for down",
			file: "internal/distinct/late.go", old: "return answered || late\n",
			new:   "return answered\n",
			model: "./internal/distinct", test: "TestACrowdOfColdKeys",
		},
		{
			name: "a late load counts as a failure", file: "syncer/load.go",
			old:   "\tcase errors.Is(r.Err, store.ErrLate):\n",
			new:   "\tcase errors.Is(r.Err, store.ErrLate) && r.Err == nil:\n",
			model: "./syncer", test: "TestPacedModel",
		},
		{
			name: "a late store is taken for silent", file: "syncer/health.go",
			old:   "r.Err == nil || errors.Is(r.Err, store.ErrLate) ||",
			new:   "r.Err == nil ||",
			model: "./syncer", test: "TestPacedModel",
		},
		{
			name: "on-cold decides about a key that the store refuses", file: "syncer/evaluate.go",
			old:   "if k.op.Kind == twotier.Acquire && t.keyRefused {",
			new:   "if k.op.Kind == twotier.Acquire && t.keyRefused && t.storeDown {",
			model: "./syncer", test: "TestOnColdSaysNothingOfARefusedKey",
		},
		{
			name: "on-cold decides while the store refuses", file: "syncer/load.go",
			old: "\t\tl.Refuse(r, time.Now())\n", new: "\t\tl.Fail(r, time.Now())\n",
			model: "./syncer", test: "TestOnColdSaysNothingOfAStoreThatRefuses",
		},
		{
			name: "loads are bounded by keys only", file: "syncer/readwidth.go",
			old: "{ w.cut += r.Reads }", new: "{}",
			model: "./syncer", test: "TestPacedModel",
		},
		{
			name: "on-cold decides for those who ran out of time", file: "syncer/warm.go",
			old: "\t\treturn errLate\n",
			new: "\t\tk.lock()\n\t\tfor i := range k.targets {\n" +
				"\t\t\tk.targets[i].storeDown = true\n\t\t}\n\t\treturn nil\n",
			model: "./syncer", test: "TestPacedModel",
		},
		{
			name: "who left does not take back what an acquire over several slots counted",
			file: "redisstore/direct.go",
			old:  "context.WithTimeout(context.WithoutCancel(ctx), d.opt.Timeout)",
			new:  "context.WithTimeout(ctx, d.opt.Timeout)", model: "./redisstore",
			test: "TestAcquireWhoseCallerLeft",
		},
		{
			name: "a batch overtakes itself", file: "redisstore/direct.go",
			old: "\ttogether := d.workerOfAll(calls)\n", new: "\ttogether := d.workerOfAll(nil)\n",
			model: "./redisstore", test: "TestBatchesAreEquivalent|TestBatchKeepsTheOrder",
		},
		{
			name: "parts of an acquire keep what they counted", file: "redisstore/directdivide.go",
			old:   "c.refusal != \"\" || !allowed && (c.mode != modeAlways || banned) {\n",
			new:   "c.refusal != \"\" && !allowed {\n",
			model: "./redisstore", test: "TestBatchesAreEquivalent",
		},
		{
			name: "a script takes as long as its batch", file: "redisstore/direct.go",
			old: "steps: maxSteps,", new: "steps: 1 << 40,", model: "./redisstore",
			test: "TestScriptsAreBounded",
		},
		{
			name: "those who wait outlive the counter", file: "syncer/commit.go",
			old: "\tp.stopped = true\n\tp.mu.Unlock()\n\tp.wakeWaiters()\n",
			new: "\tp.stopped = true\n\tp.mu.Unlock()\n", model: "./syncer",
			test: "TestCrowdModel",
		},
	}
}

// most is how many schedules are run against a mutant, and mostSeeds how many seeds of a model: one
// of them must fail. The first failure ends the run, so both may be many times the average number
// needed.
const (
	most      = "500"
	mostSeeds = "3000"
)

// why matches the line of a schedule that reports the failure.
var why = regexp.MustCompile(
	`(?m)^\s+\w+_test\.go:\d+: (\S+: (?:Redis has|node|\d+ admitted|n\d+).*|node .*|n\d+ .*)$`)

// ran matches the number of schedules that were run.
var ran = regexp.MustCompile(` \d+ of \d+ schedules`)

// TestMutants builds each mutant and expects the schedules, or the model, to fail.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("each takes a build and some hundred schedules")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range drawn() {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out, err := schedules(t, root, &m)
			switch {
			case err == nil:
				t.Fatalf("nothing noticed that %s:\n%s", m.name, out)
			case !strings.Contains(out, "--- FAIL: Test"):
				t.Fatalf("no schedule says what is wrong: %v\n%s", err, out)
			}
			t.Logf("caught by%s in %.0f s: %s", ran.FindString(out), time.Since(began).Seconds(),
				reason(out))
		})
	}
}

// drawn returns the mutants to run.
func drawn() []mutant {
	list := slices.DeleteFunc(mutants(), func(m mutant) bool { return m.more && !*allFlag })
	if n := *sampleFlag; n > 0 && n < len(list) {
		rnd := rand.New(rand.NewPCG(*drawFlag, 0))
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:n]
	}
	return list
}

// schedules runs schedules, or a model, with one file of the tree changed.
func schedules(t *testing.T, root string, m *mutant) (string, error) {
	file := filepath.Join(root, filepath.FromSlash(m.file))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has what is to be broken %d times: the mutant has to follow the code",
			m.file, n)
	}
	dir := t.TempDir()
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	write(t, broken, []byte(strings.Replace(string(text), m.old, m.new, 1)))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, list)
	binary := filepath.Join(dir, "simtest")
	// Without debug information linking takes a third less time.
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w",
		"-overlay", overlay, "-o", binary, cmp.Or(m.model, "./internal/e2e/simtest"))
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not build: %v\n%s", err, out)
	}
	args := []string{"-test.run=TestSchedules", "-test.timeout=10m", "-schedules=" + most,
		"-kind=" + m.kind}
	if m.also != "" {
		args = append(args, m.also)
	}
	if m.model != "" {
		args = []string{"-test.run=" + cmp.Or(m.test, "TestModel"), "-test.timeout=10m"}
	}
	if m.model == "./syncer" || m.model == "./internal/distinct" {
		args = append(args, "-seeds="+mostSeeds)
	}
	run := exec.CommandContext(t.Context(), binary, args...)
	run.Env = append(os.Environ(), "GOMAXPROCS=1") // there are as many mutants as processors
	out, err := run.CombinedOutput()
	return string(out), err
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// reason returns the message of the first schedule that failed.
func reason(out string) string {
	if m := why.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	lines := strings.Split(out, "\n")
	return strings.Join(lines[:min(5, len(lines))], "\n")
}
