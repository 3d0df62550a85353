;; What is added to the engine, in its own small module beside it: one coarse entry per turn, so that the host crosses
;; into WebAssembly a handful of times however many jobs a turn runs; the interrupt handler, so that a program that
;; computes past its time is stopped by the engine itself with its state intact; the rejection tracker; and the module
;; loader, which loads nothing.
;; JSValues are 64 bits (NaN boxing), tag in the upper half: 3 undefined, 6 exception.
(module
  (import "engine" "memory" (memory $memory 0))
  (import "engine" "table" (table 0 funcref))
  (import "engine" "JS_NewStringLen" (func $JS_NewStringLen (param i32 i32 i32) (result i64)))
  (import "engine" "JS_Call" (func $JS_Call (param i32 i64 i64 i32 i32) (result i64)))
  (import "engine" "JS_FreeValue" (func $JS_FreeValue (param i32 i64)))
  (import "engine" "JS_ExecutePendingJob" (func $JS_ExecutePendingJob (param i32 i32) (result i32)))
  (import "engine" "JS_GetException" (func $JS_GetException (param i32) (result i64)))
  (import "engine" "JS_ToCStringLen2" (func $JS_ToCStringLen2 (param i32 i32 i64 i32) (result i32)))
  (import "engine" "JS_FreeCString" (func $JS_FreeCString (param i32 i32)))
  (import "engine" "JS_Throw" (func $JS_Throw (param i32 i64) (result i64)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))

  ;; WASI writes the time into the memory its caller exports.
  (export "memory" (memory $memory))

  ;; Set once per instance by `bind`, or at the start of an entry; nothing here outlives a turn, so nothing here is part
  ;; of a snapshot.
  (global $ctx (mut i32) (i32.const 0))
  (global $rt (mut i32) (i32.const 0))
  (global $scratch (mut i32) (i32.const 0))   ;; guest memory that is ours, see below
  (global $tracker (mut i64) (i64.const 0))   ;; the prelude's onRejection
  (global $denial (mut i64) (i64.const 0))    ;; the prelude's moduleDenied
  (global $deadline (mut i64) (i64.const -1)) ;; on the monotonic clock, in nanoseconds; unsigned
  (global $stopped (mut i32) (i32.const 0))   ;; the deadline was met since `arm`

  (func (export "bind")
    (param $ctx i32) (param $rt i32) (param $scratch i32) (param $tracker i64) (param $denial i64)
    (global.set $ctx (local.get $ctx))
    (global.set $rt (local.get $rt))
    (global.set $scratch (local.get $scratch))
    (global.set $tracker (local.get $tracker))
    (global.set $denial (local.get $denial)))

  (func $now (result i64)
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (global.get $scratch)))
    (i64.load (global.get $scratch)))

  ;; Scratch: 0 time, 8 length of the collected text, 12 its address, 16 arguments of the tracker, 40 argument of an
  ;; entry, 48 context of a job, 56 set by the host, from another thread, to stop what runs, 64 short messages.
  (func $arm (param $budget i64)
    (global.set $stopped (i32.const 0))
    (global.set $deadline (i64.add (call $now) (local.get $budget))))

  (func $on_interrupt (param $rt i32) (param $opaque i32) (result i32)
    (global.set $stopped
      (i32.or
        (i32.load offset=56 (global.get $scratch))
        (i64.ge_u (call $now) (global.get $deadline))))
    (global.get $stopped))

  (func $on_rejection (param $ctx i32) (param $promise i64) (param $reason i64) (param $handled i32) (param $opaque i32)
    (local $argv i32)
    (local $result i64)
    (if (i64.eqz (global.get $tracker)) (then (return)))
    (local.set $argv (i32.add (global.get $scratch) (i32.const 16)))
    (i64.store (local.get $argv) (local.get $promise))
    (i64.store offset=8 (local.get $argv) (local.get $reason))
    (i64.store offset=16 (local.get $argv)
      (i64.or (i64.const 0x100000000) (i64.extend_i32_u (i32.ne (local.get $handled) (i32.const 0)))))
    (local.set $result
      (call $JS_Call (local.get $ctx) (global.get $tracker) (i64.const 0x300000000) (i32.const 3) (local.get $argv)))
    (if (call $is_exception (local.get $result))
      (then (call $JS_FreeValue (local.get $ctx) (call $JS_GetException (local.get $ctx))))
      (else (call $JS_FreeValue (local.get $ctx) (local.get $result)))))

  ;; The module loader: there are none. The prelude makes the error, so that it is known as ours.
  (func $on_module (param $ctx i32) (param $name i32) (param $opaque i32) (result i32)
    (local $error i64)
    (local.set $error
      (call $JS_Call (local.get $ctx) (global.get $denial) (i64.const 0x300000000) (i32.const 0) (i32.const 0)))
    (if (i32.eqz (call $is_exception (local.get $error)))
      (then (drop (call $JS_Throw (local.get $ctx) (local.get $error)))))
    (i32.const 0))

  (elem (table 0) (offset (i32.const 580)) func $on_interrupt $on_rejection $on_module)

  (func $is_exception (param $value i64) (result i32)
    (i64.eq (i64.shr_u (local.get $value) (i64.const 32)) (i64.const 6)))

  ;; fn(argument); 1 when it threw, the exception left pending.
  (func $call1 (param $fn i64) (param $argument i64) (result i32)
    (local $argv i32)
    (local $result i64)
    (local.set $argv (i32.add (global.get $scratch) (i32.const 40)))
    (i64.store (local.get $argv) (local.get $argument))
    (local.set $result
      (call $JS_Call (global.get $ctx) (local.get $fn) (i64.const 0x300000000) (i32.const 1) (local.get $argv)))
    (if (result i32) (call $is_exception (local.get $result))
      (then (i32.const 1))
      (else
        (call $JS_FreeValue (global.get $ctx) (local.get $result))
        (i32.const 0))))

  (func $drop_exception
    (call $JS_FreeValue (global.get $ctx) (call $JS_GetException (global.get $ctx))))

  ;; entry(input), then the job queue until it is dry, then `collect` with a budget of its own.
  ;; 0 at rest, the text collected; 3 likewise but without a text; 1 an exception is pending; 2 likewise, because the
  ;; budget (nanoseconds) was used up or the host said so; 4 and 7 as 0 and 3, but that was so too, and something in the
  ;; program swallowed it, as executors of promises do.
  (func (export "run")
    (param $entry i64) (param $input i32) (param $length i32) (param $budget i64) (param $fn i64) (param $grace i64)
    (result i32)
    (local $text i64)
    (local $threw i32)
    (local $status i32)
    (call $arm (local.get $budget))
    (local.set $text (call $JS_NewStringLen (global.get $ctx) (local.get $input) (local.get $length)))
    (if (call $is_exception (local.get $text)) (then (return (i32.const 1))))
    (local.set $threw (call $call1 (local.get $entry) (local.get $text)))
    (call $JS_FreeValue (global.get $ctx) (local.get $text))
    (if (i32.eqz (local.get $threw))
      (then
        (loop $jobs
          (local.set $status
            (call $JS_ExecutePendingJob (global.get $rt) (i32.add (global.get $scratch) (i32.const 48))))
          (br_if $jobs (i32.gt_s (local.get $status) (i32.const 0))))
        (if (i32.eqz (local.get $status))
          (then
            (local.set $status (i32.shl (global.get $stopped) (i32.const 2)))
            (return
              (i32.add
                (local.get $status)
                (select (i32.const 0) (i32.const 3) (call $collect (local.get $fn) (local.get $grace)))))))))
    (local.set $status (i32.add (i32.const 1) (call $on_interrupt (i32.const 0) (i32.const 0))))
    (i32.store offset=56 (global.get $scratch) (i32.const 0))
    (local.get $status))

  ;; Hand the pending exception to the prelude's `fault`; a failure of that is dropped.
  (func (export "report") (param $fault i64) (param $budget i64)
    (local $exception i64)
    (call $arm (local.get $budget))
    (local.set $exception (call $JS_GetException (global.get $ctx)))
    (if (call $call1 (local.get $fault) (local.get $exception)) (then (call $drop_exception)))
    (call $JS_FreeValue (global.get $ctx) (local.get $exception)))

  ;; collect() as text: its length at scratch + 8, its address at scratch + 12, until `release`. 0 when it threw.
  (func $collect (export "collect") (param $fn i64) (param $budget i64) (result i32)
    (local $result i64)
    (local $text i32)
    (call $release)
    (call $arm (local.get $budget))
    (local.set $result
      (call $JS_Call (global.get $ctx) (local.get $fn) (i64.const 0x300000000) (i32.const 0) (i32.const 0)))
    (if (call $is_exception (local.get $result)) (then (call $drop_exception) (return (i32.const 0))))
    (local.set $text
      (call $JS_ToCStringLen2
        (global.get $ctx) (i32.add (global.get $scratch) (i32.const 8)) (local.get $result) (i32.const 0)))
    (call $JS_FreeValue (global.get $ctx) (local.get $result))
    (if (i32.eqz (local.get $text)) (then (call $drop_exception)))
    (i32.store offset=12 (global.get $scratch) (local.get $text))
    (i32.ne (local.get $text) (i32.const 0)))

  ;; Free the collected text, if there is one.
  (func $release (export "release")
    (if (i32.load offset=12 (global.get $scratch))
      (then
        (call $JS_FreeCString (global.get $ctx) (i32.load offset=12 (global.get $scratch)))
        (i32.store offset=12 (global.get $scratch) (i32.const 0)))))
)
