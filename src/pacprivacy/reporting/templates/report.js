(function () {
  "use strict";
  var button = document.getElementById("copy");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var source = document.getElementById("certificate");
      var done = function () {
        button.textContent = "Copied";
        setTimeout(function () { button.textContent = "Copy"; }, 1600);
      };
      var byHand = function () {
        var range = document.createRange();
        range.selectNodeContents(source);
        var selection = window.getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        if (document.execCommand("copy")) { done(); }
      };
      if (navigator.clipboard && window.isSecureContext) {
        navigator.clipboard.writeText(source.textContent).then(done, byHand);
      } else {
        byHand();
      }
    });
  }
})();
