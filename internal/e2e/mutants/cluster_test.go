package mutants

// clusterMutants break the agreement between the nodes of a cluster: which node holds a partition,
// which one decides in an owner's place, the outcome of an acquire over several owners, loans, the
// mode, and the effects of messages. Only schedules notice them.
func clusterMutants() []mutant {
	return []mutant{
		{
			name: "what the owner before does not hold is nobody's",
			file: "internal/ownership/before.go",
			old: "\t\to.opt.Go(func(ctx context.Context) { o.takeOver(ctx, " +
				"rest) })\n",
			new:  "\t\to.beginFromStore(rest)\n",
			kind: "moves",
		},
		{
			name: "a partition with open reservations is given up",
			file: "internal/ownership/handoff.go",
			old: "\tcase errors.Is(err, twotier.ErrUnavailable):\n" +
				"\t\to.takeBackLocked",
			new: "\tcase false:\n" +
				"\t\to.takeBackLocked",
			kind: "moves",
		},
		{
			name: "an owner drops what the table assigns to another",
			file: "internal/ownership/follow.go",
			old: "\t\tcase !assigned && s.phase == own:\n" +
				"\t\t\to.enterLocked(p, outgoing)\n",
			new: "\t\tcase !assigned && s.phase == own:\n" +
				"\t\t\to.abandonLocked(p)\n",
			kind: "moves", more: true,
		},
		{
			name: "an operation of unknown outcome is run again",
			file: "internal/routing/retry.go",
			old: "d.to == forward && op.Reads() && errors.Is(err, " +
				"twotier.ErrUnknownOutcome)",
			new:  "d.to == forward && errors.Is(err, twotier.ErrUnknownOutcome)",
			kind: "delays",
		},
		{
			name: "a node stands in when the time for it is up",
			file: "internal/routing/fallback.go",
			old:  "\tif ctx.Err() != nil {\n\t\treturn errExpired\n\t}\n",
			new:  "",
			kind: "crashes", more: true,
		},
		{
			name: "a node stands in for an owner that names one which is gone",
			file: "internal/routing/forward.go",
			old:  "\t\t\terr = twotier.ErrNotOwner\n",
			new:  "",
			kind: "crashes", more: true,
		},
		{
			name: "an acquire in doubt settles at once",
			file: "internal/multiowner/finish.go",
			old:  "\t\t\tq.background(a, doubtTime, q.resolve)\n",
			new:  "\t\t\tq.settle(a)\n",
			kind: "delays",
		},
		{
			name: "a refused part is counted by its owner and by the coordinator",
			file: "internal/multiowner/acquire.go",
			old:  "\top.CountDenied = false\n",
			new:  "",
			kind: "graceful", more: true,
		},
		{
			name: "an acquire that is being decided counts as refused",
			file: "internal/multiowner/outcomes.go",
			old: "\t\tif d.number == id.Number {\n" +
				"\t\t\treturn d.outcome, nil\n",
			new: "\t\tif d.number == id.Number {\n" +
				"\t\t\tif d.outcome == Undecided {\n" +
				"\t\t\t\treturn NotCarriedOut, nil\n" +
				"\t\t\t}\n" +
				"\t\t\treturn d.outcome, nil\n",
			kind: "outages",
		},
		{
			name: "what is lent is taken back without a recall",
			file: "internal/hotkeys/recall.go",
			old: "\tif !lent {\n" +
				"\t\top.Recalled = decides",
			new: "\tif !lent || lent {\n" +
				"\t\top.Recalled = decides",
			kind: "graceful", also: "-hot", more: true,
		},
		{
			name: "who is asked to store its counts of a key says that it did",
			file: "internal/hotkeys/recall.go",
			old: "\treturn t.opt.Counter.CatchUp(ctx, &twotier.Check{NS: " +
				"q.NS, Key: q.Key})\n",
			new:  "\treturn nil\n",
			kind: "graceful", also: "-hot",
		},
		{
			name: "a key counts as read once its tickets are acknowledged",
			file: "syncer/internal/loans/key.go",
			old:  "return k.seen > reads", new: "return k.reads > reads",
			model: "./syncer", test: "TestCatchUpBehindARefusedRound",
		},
		{
			name: "partitions are let go that their owner still looks for",
			file: "internal/ownership/handoff.go",
			old:  "\tfor _, p := range a.Sought {", new: "\tfor _, p := range a.Sought[:0] {",
			model: "./internal/ownership", test: "TestAHolderWaitsForASlowSearch",
		},
		{
			name: "all loans of a key have one name",
			file: "internal/hotkeys/loan.go",
			old:  "Loan: rand.Text()}}",
			new:  "Loan: (rand.Text() + \"loan\")[26:]}}",
			kind: "graceful", also: "-hot",
		},
		{
			name: "the mode changes though a node could not prepare",
			file: "internal/modes/switch.go",
			old: "err := s.prepare(ctx, q)\n" +
				"\tif err != nil {\n" +
				"\t\tq.Phase = Abort",
			new: "err := s.prepare(ctx, q)\n" +
				"\tif false {\n" +
				"\t\tq.Phase = Abort",
			kind: "modes",
		},
		{
			name: "a handover that a change of mode finds under way is not resumed",
			file: "internal/ownership/suspend.go",
			old:  " || s.phase == moving\n",
			new:  "\n",
			kind: "modes", more: true,
		},
		{
			name: "a change of mode does not wait for operations in Redis",
			file: "internal/modes/step.go",
			old:  "s.inFlight.Load() > 0 || !s.opt.Idle()",
			new:  "!s.opt.Idle()",
			kind: "modes", more: true,
		},
		{
			name: "a change of mode does not wait for reservations",
			file: "internal/modes/step.go",
			old:  "s.inFlight.Load() > 0 || !s.opt.Idle()",
			new:  "s.inFlight.Load() > 0",
			kind: "modes", more: true,
		},
		{
			name: "operations in Redis begin while the mode changes",
			file: "internal/modes/gate.go",
			old:  "\tif s.paused.Load() || s.Mode() != in {\n",
			new:  "\tif s.Mode() != in {\n",
			kind: "modes", more: true,
		},
		{
			name: "what may have arrived counts as not executed after a restart",
			file: "internal/peer/exchange.go",
			old: "n.l.fail(errGone)\n" +
				"\t\t\treturn nil, n.lost(sent, rpc.ErrUnreachable, errGone",
			new: "n.l.fail(errGone)\n" +
				"\t\t\treturn nil, n.lost(false, rpc.ErrUnreachable, errGone",
			kind: "restarts", more: true,
		},
		{
			name: "what may have arrived counts as not executed when its node is gone",
			file: "internal/peer/exchange.go",
			old: "n.l.fail(err)\n" +
				"\t\t\tif !sent {",
			new: "n.l.fail(err)\n" +
				"\t\t\tif true {",
			kind: "restarts",
		},
		{
			name: "what the caller does not wait for counts as not executed",
			file: "internal/peer/wait.go",
			old:  "\t\terr = fmt.Errorf(\"%w: %v\", twotier.ErrUnknownOutcome, err)\n",
			new:  "\t\terr = rpc.ErrLate\n",
			kind: "delays", more: true,
		},
		{
			name: "calls of one message share the latest deadline",
			file: "internal/peer/worker.go",
			old: "appendUint(b, " +
				"uint64(last.Sub(calls[size-1].by)/time.Microsecond)+1)",
			new:  "appendUint(b, uint64(last.Sub(last)/time.Microsecond)+1)",
			kind: "delays",
		},
		{
			name: "a message that is sent again has another number",
			file: "internal/peer/exchange.go",
			old:  "\t\tm.Until = n.l.until(m.Budget)\n",
			new:  "\t\tm.Until, m.Seq = n.l.until(m.Budget), n.l.c.seq.Add(1)\n",
			kind: "splits", more: true,
		},
		{
			name: "a node leaves with open reservations",
			file: "internal/node/drain.go",
			old:  " || !n.parts.Idle() || ",
			new:  " || ",
			kind: "delays", more: true,
		},
		{
			name: "a node that leaves does not say what it has decided",
			file: "internal/node/drain.go",
			old:  "\tn.parts.Leave(ctx)\n",
			new:  "",
			kind: "delays", more: true,
		},
	}
}
