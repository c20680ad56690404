# Fails unless FILE is what `PROGRAM docs PAGE` prints.
execute_process(COMMAND ${PROGRAM} docs ${PAGE} OUTPUT_VARIABLE expected RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${PROGRAM} docs ${PAGE} failed: ${failed}")
endif()
file(READ ${FILE} actual)
if(NOT actual STREQUAL expected)
  message(FATAL_ERROR "${FILE} is out of date; run: culprit docs ${PAGE} >docs/${PAGE}.md")
endif()
